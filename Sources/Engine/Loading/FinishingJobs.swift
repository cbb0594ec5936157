internal import Jobs
internal import Synchronization

/// Works on claimed jobs: a ``Load``, or ``FinishingJobs`` after it.
protocol JobCarrier: AnyObject, Sendable {
  /// Removes a job that was cancelled or whose claim was lost.
  /// - Parameter discardingBytes: whether the received bytes of a transfer are deleted if no job is left.
  func remove(_ claim: Claim, discardingBytes: Bool)

  /// Changes the priority of a job.
  func prioritize(_ claim: Claim, _ priority: Priority)
}

/// Jobs that pass the stages after a load together: of one owner, with the same image and the same variants. A job with
/// deliveries is alone.
final class FinishingJobs: JobCarrier {
  typealias Instant = ContinuousClock.Instant

  private struct State {
    var waiters: [Claim: Load.Waiter]
    /// The earliest deadline of the jobs; nil if deadlines no longer apply.
    var deadline: Instant?
    var task: Task<Void, Never>?
    var isCancelled = false
  }

  /// The first job. All jobs want the same.
  let leader: Job
  /// Nil if tracing is off.
  let stages: LoadStages?
  private let state: Mutex<State>

  /// - Parameter waiters: at least one; all have a pending result.
  init(_ waiters: [Load.Waiter], _ stages: LoadStages?) {
    leader = waiters[0].job
    self.stages = stages
    state = Mutex(
      State(
        waiters: Dictionary(
          waiters.map { ($0.claim, $0) }, uniquingKeysWith: { first, _ in first }),
        deadline: waiters.map(\.deadline).min()))
  }

  /// Sets the task that works on the jobs. Cancels the task if the jobs were already cancelled.
  func run(as task: Task<Void, Never>) {
    let isCancelled = state.withLock { state in
      state.task = task
      return state.isCancelled
    }
    if isCancelled { task.cancel() }
  }

  var waiters: [Load.Waiter] { state.withLock { Array($0.waiters.values) } }

  /// The highest priority of the jobs.
  var priority: Priority {
    state.withLock { $0.waiters.values.map(\.priority).max() } ?? leader.priority
  }

  func remove(_ claim: Claim, discardingBytes: Bool) { change { $0.waiters[claim] = nil } }

  func prioritize(_ claim: Claim, _ priority: Priority) {
    change { $0.waiters[claim]?.priority = priority }
  }

  func cancel() { change { $0.isCancelled = true } }

  /// Removes and returns all jobs. The caller must end them.
  func removeAll() -> [Load.Waiter] {
    state.withLock { state in
      defer { state.waiters = [:] }
      return Array(state.waiters.values)
    }
  }

  /// Ends the jobs' own timeouts: deliveries have a timeout of their own.
  func endTimeouts() { state.withLock { $0.deadline = nil } }

  /// Removes and returns the jobs whose deadline has passed. The caller must end them.
  func removeLate(at now: Instant) -> [Load.Waiter] {
    var late: [Load.Waiter] = []
    change { state in
      guard let deadline = state.deadline, deadline <= now else { return }
      late = state.waiters.values.filter { $0.deadline <= now }
      for waiter in late { state.waiters[waiter.claim] = nil }
      state.deadline = state.waiters.values.map(\.deadline).min()
    }
    return late
  }

  /// Changes the jobs, and cancels the work if none is left.
  private func change(_ body: (inout State) -> Void) {
    let task = state.withLock { state -> Task<Void, Never>? in
      body(&state)
      if state.waiters.isEmpty { state.isCancelled = true }
      return state.isCancelled ? state.task : nil
    }
    task?.cancel()
  }
}
