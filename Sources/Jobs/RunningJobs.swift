internal import Synchronization

/// What workers of this service do now, and how to stop each run.
final class RunningJobs: Sendable {
  /// One try at one job.
  struct Run: Sendable {
    /// The job as it was taken.
    let job: Job
    let since: Timestamp
    let reporter: Reporter
    let task: Task<Void, Never>
  }

  private struct State {
    // A job's next run can begin while its cancelled one is still ending.
    var runs: [Claim: Run] = [:]
    var isClosed = false
  }
  private let state = Mutex(State())

  func add(_ run: Run, under claim: Claim) {
    let isClosed = state.withLock { state in
      state.runs[claim] = run
      return state.isClosed
    }
    if isClosed { run.task.cancel() }
  }

  func remove(_ claim: Claim) { state.withLock { _ = $0.runs.removeValue(forKey: claim) } }

  /// Stops the runs that had begun when the job was at that version.
  func cancel(_ id: JobID, before version: Int) {
    for run in runs(of: id) where run.job.version < version { run.task.cancel() }
  }

  /// Has what is still to be done for the job go before work of a lower priority. Work under way can be raised only:
  /// a lower priority counts from the next try on.
  func raise(_ id: JobID, to priority: Priority) {
    for run in runs(of: id) { run.task.escalatePriority(to: priority.taskPriority) }
  }

  private func runs(of id: JobID) -> [Run] {
    state.withLock { state in state.runs.filter { $0.key.job == id }.map(\.value) }
  }

  /// Stops all, and whichever is added after this.
  func close() {
    let runs = state.withLock { state in
      state.isClosed = true
      return Array(state.runs.values)
    }
    for run in runs { run.task.cancel() }
  }

  /// Shows what the runs have to tell, ten times a second until cancelled.
  func showProgress() async {
    while !Task.isCancelled {
      for run in state.withLock({ Array($0.runs.values) }) { run.reporter.show() }
      try? await Task.sleep(for: .milliseconds(100))
    }
  }

  var count: Int { state.withLock { $0.runs.count } }

  /// When the one that runs longest began.
  var oldest: Timestamp? { state.withLock { $0.runs.values.map(\.since).min() } }
}
