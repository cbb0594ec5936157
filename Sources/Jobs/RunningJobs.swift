internal import Synchronization

/// The jobs that workers of this service carry now, and how to stop each.
final class RunningJobs: Sendable {
  private struct Run {
    let since: Timestamp
    let reporter: Reporter
    let cancel: @Sendable () -> Void
  }
  private struct State {
    var runs: [JobID: Run] = [:]
    var isClosed = false
  }
  private let state = Mutex(State())

  func add(
    _ id: JobID, since: Timestamp, reporter: Reporter, cancel: @escaping @Sendable () -> Void
  ) {
    let isClosed = state.withLock { state in
      state.runs[id] = Run(since: since, reporter: reporter, cancel: cancel)
      return state.isClosed
    }
    if isClosed { cancel() }
  }

  func remove(_ id: JobID) { state.withLock { _ = $0.runs.removeValue(forKey: id) } }

  func cancel(_ id: JobID) { state.withLock { $0.runs[id] }?.cancel() }

  /// Cancels all, and whichever is added after this.
  func close() {
    let runs = state.withLock { state in
      state.isClosed = true
      return Array(state.runs.values)
    }
    for run in runs { run.cancel() }
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
