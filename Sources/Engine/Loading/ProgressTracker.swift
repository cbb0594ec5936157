internal import Jobs
internal import Synchronization

/// How far one load has come. ``ProgressWatch`` shows it ten times a second, so that the newest state is always shown,
/// however little comes after it.
final class ProgressTracker: Sendable {
  private struct State {
    var progress = LoadProgress()
    var began = ContinuousClock.now
    var isShown = true
    var preview: Preview?
  }

  private let state: Mutex<State>

  /// - Parameter progress: how far its jobs have come already.
  init(_ progress: LoadProgress) { state = Mutex(State(progress: progress)) }

  /// A request is about to be sent: nothing of an earlier one counts but its number.
  func requestBegins() {
    note { state in
      state.began = .now
      state.progress.bytes = Progress()
      state.progress.previews = 0
      state.preview = nil
      state.progress.requests += 1
    }
  }

  /// No request was sent after all.
  func requestWasRefused() { note { $0.progress.requests -= 1 } }

  func expect(total: Int) { note { $0.progress.bytes.total = total } }

  func responseCame(_ response: FetchedResponse) {
    note { state in
      if response.status != 206 { state.progress.bytes.total = response.contentLength }
      state.progress.timings.dns = response.timings.dns
      state.progress.timings.connect = response.timings.connect
      state.progress.timings.tls = response.timings.tls
      state.progress.timings.firstByte = response.timings.firstByte
    }
  }

  /// The response goes on where kept bytes end.
  func resumes(from count: Int, total: Int) {
    note { state in
      state.progress.bytes = Progress(completed: count, total: total, resumedFrom: count)
    }
  }

  func advance(to count: Int, decodeTime: Duration) {
    note { state in
      state.progress.bytes.completed = max(count, state.progress.bytes.completed)
      state.progress.timings.decode = decodeTime
    }
  }

  func bodyCame() {
    note { state in
      let fetch = state.began.duration(to: .now)
      state.progress.timings.fetch = fetch
      state.progress.timings.body = state.progress.timings.firstByte.map { max(.zero, fetch - $0) }
    }
  }

  /// There is a newer preview.
  func made(_ preview: Preview) {
    note { state in
      state.preview = preview
      state.progress.previews += 1
    }
  }

  /// The newest one, for as long as the load lasts.
  var preview: Preview? { state.withLock { $0.preview } }

  var progress: LoadProgress { state.withLock { $0.progress } }

  /// Bytes so far.
  var received: Int { state.withLock { $0.progress.bytes.completed } }

  /// Whether so many bytes are all that were announced.
  func isWhole(with count: Int) -> Bool { state.withLock { $0.progress.bytes.total == count } }

  /// The progress, unless it was taken before.
  func takeUnshown() -> LoadProgress? {
    state.withLock { state in
      guard !state.isShown else { return nil }
      state.isShown = true
      return state.progress
    }
  }

  private func note(_ change: (inout State) -> Void) {
    state.withLock { state in
      change(&state)
      state.isShown = false
    }
  }
}

/// Shows how far loads have come, ten times a second, and ends jobs whose time is over.
///
/// Pieces of images come thousands of times a second: a change for each would cost more than decoding it. So this looks
/// at all loads every 50 ms, for as long as there are any, and waits for no store.
struct ProgressWatch: Sendable {
  let loads: Loads
  let loader: Loader
  let threads: any ComputeThreads

  /// Watches until cancelled.
  func run() async {
    await withDiscardingTaskGroup { group in
      for await _ in loads.beginnings {
        var round = 0
        while !Task.isCancelled, !loads.isEmpty {
          for load in loads.all {
            endLate(of: load, in: &group)
            if round.isMultiple(of: 2) { loads.showProgress(of: load) }
            guard load.beginEndingEarly() else { continue }
            group.addTask { [completer = loader.completer] in
              await completer.completeEarlyEnds(of: load)
              load.endEndingEarly()
            }
          }
          for jobs in loads.finishing { endLate(of: jobs, in: &group) }
          round += 1
          try? await Task.sleep(for: .milliseconds(50))
        }
      }
    }
  }

  /// Ends jobs whose time is over before their variants are made.
  private func endLate(of jobs: FinishingJobs, in group: inout DiscardingTaskGroup) {
    let late = jobs.takeLate(at: .now)
    guard !late.isEmpty else { return }
    group.addTask { [completer = loader.completer] in
      await completer.complete(late, of: jobs) { waiter in
        .failure(.fetch(.timeout(seconds: waiter.limits.timeout.inSeconds)), waiter.job.pending)
      }
    }
  }

  /// Ends jobs whose time is over. Where a stored response may take the origin's place each is given that, as it would be
  /// if it had asked alone.
  private func endLate(of load: Load, in group: inout DiscardingTaskGroup) {
    for (timeout, late) in Dictionary(grouping: load.timeOut(.now), by: \.limits.timeout) {
      let lane = threads.lane(at: load.leader.priority)
      guard let own = loads.split(late, off: load, on: lane) else { continue }
      let refusal = FetchError.timeout(seconds: timeout.inSeconds)
      group.addTask { [loader] in
        let task = Task(executorPreference: lane) {
          await loader.carryOut(own, OriginPermits(nil), refusal: refusal)
        }
        own.run(as: task)
        await task.value
      }
    }
  }
}
