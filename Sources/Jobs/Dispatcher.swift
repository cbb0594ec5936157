internal import Logging

/// Hands queued jobs to idle workers. The queue itself is the store's: a job that waits costs no memory here.
actor Dispatcher {
  typealias Work = (job: Job, claim: Claim)

  private let store: any JobStore
  private let now: WallClock
  private let log: Logger
  private let wakeUps: AsyncStream<Void>
  private let wakeUp: AsyncStream<Void>.Continuation
  private var idle: [CheckedContinuation<Work?, Never>] = []
  private var alarm: Task<Void, Never>?
  private var isStopped = false

  init(store: any JobStore, now: @escaping WallClock, log: Logger) {
    self.store = store
    self.now = now
    self.log = log
    (wakeUps, wakeUp) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
  }

  /// Says that there may be a job to claim. Many calls in a row cost one look.
  nonisolated func wake() { wakeUp.yield() }

  /// Waits for a job; nil once stopped.
  func next() async -> Work? {
    if isStopped { return nil }
    return await withCheckedContinuation { continuation in
      idle.append(continuation)
      wake()
    }
  }

  /// Claims jobs for idle workers until stopped.
  func run() async {
    for await _ in wakeUps { await claim() }
    alarm?.cancel()
  }

  /// No job is handed over after this; idle workers are sent home.
  func stop() {
    isStopped = true
    wakeUp.finish()
    for worker in idle { worker.resume(returning: nil) }
    idle = []
  }

  private func claim() async {
    while !idle.isEmpty, !isStopped {
      let wanted = idle.count
      let claimed: Claimed
      do throws(StoreError) {
        claimed = try await store.claim(wanted, at: now(), room: .unlimited)
      } catch {
        log.error("the store hands over no jobs", metadata: ["error": "\(error)"])
        return wake(after: .seconds(1))
      }
      await hand(over: claimed.jobs)
      if claimed.jobs.count < wanted {
        if let due = claimed.nextDue { wake(after: due - now()) }
        return
      }
    }
  }

  private func hand(over jobs: [Work]) async {
    var jobs = jobs[...]
    while let work = jobs.first, let worker = idle.popLast() {
      jobs = jobs.dropFirst()
      worker.resume(returning: work)
    }
    // Claimed while the service was being stopped: nobody will carry them.
    for work in jobs {
      _ = try? await store.update(work.job.id, under: work.claim) { job in
        job.putBack()
        return true
      }
    }
  }

  private func wake(after delay: Duration) {
    alarm?.cancel()
    alarm = Task { [wakeUp] in
      // Neither sooner than a due moment that was rounded down, nor so late that a changed clock matters.
      try? await Task.sleep(for: min(max(delay, .milliseconds(1)), .seconds(60)))
      if !Task.isCancelled { wakeUp.yield() }
    }
  }
}
