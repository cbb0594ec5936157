internal import Jobs
internal import Synchronization

/// Works on claimed jobs: a load, or the stages after it.
protocol JobCarrier: AnyObject, Sendable {
  /// A job was cancelled, or its claim was lost.
  /// - Parameter forgetting: whether bytes of a transfer so far are not to be kept if it was the last job.
  func leave(_ claim: Claim, forgetting: Bool)

  /// A job has another priority from now on.
  func prioritize(_ claim: Claim, _ priority: Priority)
}

/// Jobs that go through the stages after a load together: of one owner, with the same image and the same variants. A job
/// that is to be delivered goes alone.
final class FinishingJobs: JobCarrier {
  typealias Instant = ContinuousClock.Instant

  private struct State {
    var waiters: [Claim: Load.Waiter]
    /// When the first job's time is over; nil: none is watched.
    var deadline: Instant?
    var task: Task<Void, Never>?
    var isCancelled = false
  }

  /// The first job. All jobs ask the same.
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

  /// Names the task that carries the jobs through, so that it can be cancelled; at once where that was asked.
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

  func leave(_ claim: Claim, forgetting: Bool) { change { $0.waiters[claim] = nil } }

  func prioritize(_ claim: Claim, _ priority: Priority) {
    change { $0.waiters[claim]?.priority = priority }
  }

  func cancel() { change { $0.isCancelled = true } }

  /// Takes out all jobs: the caller ends them.
  func takeAll() -> [Load.Waiter] {
    state.withLock { state in
      defer { state.waiters = [:] }
      return Array(state.waiters.values)
    }
  }

  /// Lets no job's own timeout end it any more: deliveries have their own.
  func stopWatching() { state.withLock { $0.deadline = nil } }

  /// Takes out the jobs whose time is over: the caller ends them.
  func takeLate(at now: Instant) -> [Load.Waiter] {
    var late: [Load.Waiter] = []
    change { state in
      guard let deadline = state.deadline, deadline <= now else { return }
      late = state.waiters.values.filter { $0.deadline <= now }
      for waiter in late { state.waiters[waiter.claim] = nil }
      state.deadline = state.waiters.values.map(\.deadline).min()
    }
    return late
  }

  /// Changes the waiting jobs, and cancels the work when none is left.
  private func change(_ body: (inout State) -> Void) {
    let task = state.withLock { state -> Task<Void, Never>? in
      body(&state)
      if state.waiters.isEmpty { state.isCancelled = true }
      return state.isCancelled ? state.task : nil
    }
    task?.cancel()
  }
}
