internal import Jobs
internal import Synchronization

/// A subscription to one job until its end.
final class OneJobSubscription: JobSubscription, Subscriber {
  private struct State {
    var newest: JobSnapshot
    var events = JobEvents()
    /// The version that the client has; nil: none yet.
    var seen: Int?
    var hasEnded = false
    var wake: (@Sendable () -> Void)?
  }

  private let registration: Subscribers.Registration
  private let state: Mutex<State>

  /// - Parameter seen: the version that the client already has.
  init(to snapshot: JobSnapshot, seen: Int?, _ registration: Subscribers.Registration) {
    self.registration = registration
    var first = State(newest: snapshot)
    if seen == snapshot.job.version {
      first.seen = seen
    } else {
      first.events = JobEvents(from: nil, to: snapshot.job)
    }
    state = Mutex(first)
  }

  func onUpdate(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  func next() -> JobUpdate {
    state.withLock { state in
      let job = state.newest.job
      if !state.events.isEmpty {
        let events = state.events.ordered(for: job, isFirst: state.seen == nil)
        state.seen = job.version
        state.events = JobEvents()
        return .job(state.newest, events)
      }
      return state.hasEnded || job.isFinal ? .end : .nothing
    }
  }

  func keepJobRunning() { registration.keepJobRunning() }

  func deliver(_ changes: [Change]) {
    let wake = state.withLock { state -> (@Sendable () -> Void)? in
      for change in changes where change.snapshot.job.version > state.newest.job.version {
        state.newest = change.snapshot
        state.events.formUnion(change.events)
      }
      return state.events.isEmpty && !state.newest.job.isFinal ? nil : state.wake
    }
    wake?()
  }

  func remove(_ ids: Set<JobID>) { finish(discardingEvents: true) }

  func finish() { finish(discardingEvents: false) }

  private func finish(discardingEvents: Bool) {
    let wake = state.withLock { state in
      state.hasEnded = true
      if discardingEvents { state.events = JobEvents() }
      return state.wake
    }
    wake?()
  }
}
