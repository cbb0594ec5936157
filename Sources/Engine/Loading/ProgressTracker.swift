internal import Jobs
internal import Synchronization
internal import Waiting

/// The progress of one load. ``ProgressWatch`` publishes it ten times a second, so that the newest state is always
/// published, even if nothing follows it.
final class ProgressTracker: Sendable {
  private struct State {
    var progress = LoadProgress()
    var began = ContinuousClock.now
    var isPublished = true
    var preview: Preview?
  }

  private let state: Mutex<State>

  /// - Parameter progress: the progress of an earlier load of the same jobs.
  init(_ progress: LoadProgress) { state = Mutex(State(progress: progress)) }

  /// A request is about to be sent. Resets the progress of the request before, except for the number of requests.
  func requestBegins() {
    update { state in
      state.began = .now
      state.progress.bytes = Progress()
      state.progress.previews = 0
      state.preview = nil
      state.progress.requests += 1
    }
  }

  /// The request was blocked before it was sent.
  func requestWasRefused() { update { $0.progress.requests -= 1 } }

  func expect(total: Int) { update { $0.progress.bytes.total = total } }

  func responseReceived(_ response: FetchedResponse) {
    update { state in
      if response.status != 206 { state.progress.bytes.total = response.contentLength }
      state.progress.timings.dns = response.timings.dns
      state.progress.timings.connect = response.timings.connect
      state.progress.timings.tls = response.timings.tls
      state.progress.timings.firstByte = response.timings.firstByte
    }
  }

  /// The response continues a partial transfer of `count` bytes.
  func resumes(from count: Int, total: Int) {
    update { state in
      state.progress.bytes = Progress(completed: count, total: total, resumedFrom: count)
    }
  }

  func advance(to count: Int, decodeTime: Duration) {
    update { state in
      state.progress.bytes.completed = max(count, state.progress.bytes.completed)
      state.progress.timings.decode = decodeTime
    }
  }

  func bodyReceived() {
    update { state in
      let fetch = state.began.duration(to: .now)
      state.progress.timings.fetch = fetch
      state.progress.timings.body = state.progress.timings.firstByte.map { max(.zero, fetch - $0) }
    }
  }

  /// A newer preview was made.
  func publish(_ preview: Preview) {
    update { state in
      state.preview = preview
      state.progress.previews += 1
    }
  }

  /// The newest preview; nil if none was made.
  var preview: Preview? { state.withLock { $0.preview } }

  var progress: LoadProgress { state.withLock { $0.progress } }

  /// Bytes received so far.
  var received: Int { state.withLock { $0.progress.bytes.completed } }

  /// Whether `count` is the announced size of the image.
  func isComplete(with count: Int) -> Bool { state.withLock { $0.progress.bytes.total == count } }

  /// The progress, if it changed since the last call; otherwise nil.
  func takeUnpublished() -> LoadProgress? {
    state.withLock { state in
      guard !state.isPublished else { return nil }
      state.isPublished = true
      return state.progress
    }
  }

  private func update(_ change: (inout State) -> Void) {
    state.withLock { state in
      change(&state)
      state.isPublished = false
    }
  }
}

/// Publishes the progress of loads ten times a second, and fails jobs whose deadline has passed.
///
/// Pieces of images arrive thousands of times a second, and publishing each would cost more than decoding it. So this
/// checks all loads every 50 ms while there are any. It never waits for the store.
struct ProgressWatch: Sendable {
  let loads: Loads
  let loader: Loader
  let threads: any ComputeThreads

  /// Watches until cancelled.
  func run() async {
    await withDiscardingTaskGroup { group in
      for await _ in loads.beginnings.arrivals {
        var round = 0
        while !Task.isCancelled, !loads.isEmpty {
          for load in loads.all {
            endLate(of: load, in: &group)
            if round.isMultiple(of: 2) { loads.showProgress(of: load) }
            guard load.beginStoringEarlyEnds() else { continue }
            group.addTask { [completer = loader.completer] in
              await completer.completeEarlyEnds(of: load)
              load.endStoringEarlyEnds()
            }
          }
          for jobs in loads.finishing { endLate(of: jobs, in: &group) }
          round += 1
          try? await Task.sleep(for: .milliseconds(50))
        }
      }
    }
  }

  /// Fails jobs whose deadline has passed before their variants were made.
  private func endLate(of jobs: FinishingJobs, in group: inout DiscardingTaskGroup) {
    let late = jobs.removeLate(at: .now)
    guard !late.isEmpty else { return }
    group.addTask { [completer = loader.completer] in
      await completer.complete(late, of: jobs) { waiter in
        .failure(.fetch(.timeout(seconds: waiter.limits.timeout.inSeconds)), waiter.job.pending)
      }
    }
  }

  /// Fails jobs whose deadline has passed. If a stored response may replace the origin's, each job gets that response
  /// instead, as if it had been alone.
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

/// The times at which the stages of a load started and ended, for traces of its jobs.
final class LoadStages: Sendable {
  private typealias Instant = ContinuousClock.Instant

  private typealias Stage = (name: JobStage.Name, began: Instant, ended: Instant?)

  private let stages: Mutex<[Stage]>

  init() { stages = Mutex([]) }

  private init(_ stages: [Stage]) { self.stages = Mutex(stages) }

  /// A copy of the stages so far, for jobs that continue after the load.
  func copy() -> LoadStages { LoadStages(stages.withLock { $0 }) }

  func begin(_ name: JobStage.Name) { stages.withLock { $0.append((name, .now, nil)) } }

  func end(_ name: JobStage.Name) {
    stages.withLock { stages in
      guard let last = stages.lastIndex(where: { $0.name == name && $0.ended == nil }) else {
        return
      }
      stages[last].ended = .now
    }
  }

  /// Returns the stages for the traces of jobs that end now. Stages that have not ended count up to now.
  /// - Parameter began: the start of storing the jobs' end, which is the last stage.
  func stages(storedSince began: ContinuousClock.Instant) -> [JobStage] {
    let now = ContinuousClock.now
    let last = JobStage(.store, before: now - began, took: now - began)
    return stages.withLock { stages in
      stages.map { JobStage($0.name, before: now - $0.began, took: ($0.ended ?? now) - $0.began) }
    } + [last]
  }
}
