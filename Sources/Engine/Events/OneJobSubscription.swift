internal import Jobs
internal import Synchronization

/// Listens to one job until its end.
final class OneJobSubscription: JobSubscription {
  private struct State {
    var newest: JobSnapshot
    var events = JobEvents()
    /// The version that was told last; nil: none yet.
    var told: Int?
    var hasEnded = false
    var wake: (@Sendable () -> Void)?
  }

  let id: JobID
  private let subscribers: Subscribers
  private let token: UInt64
  private let state: Mutex<State>

  /// - Parameter told: the version that it has heard of already.
  init(to snapshot: JobSnapshot, told: Int?, _ subscribers: Subscribers, token: UInt64) {
    id = snapshot.job.id
    self.subscribers = subscribers
    self.token = token
    var first = State(newest: snapshot)
    if told == snapshot.job.version {
      first.told = told
    } else {
      first.events = JobEvents(from: nil, to: snapshot.job)
    }
    state = Mutex(first)
  }

  deinit { subscribers.leave(token, of: id) }

  func onUpdate(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  func next() -> JobUpdate {
    state.withLock { state in
      let job = state.newest.job
      if !state.events.isEmpty {
        let events = state.events.ordered(for: job, isFirst: state.told == nil)
        state.told = job.version
        state.events = JobEvents()
        return .job(state.newest, events)
      }
      return state.hasEnded || job.isFinal ? .end : .nothing
    }
  }

  func deliver(_ snapshot: JobSnapshot, _ events: JobEvents) {
    let wake = state.withLock { state -> (@Sendable () -> Void)? in
      guard snapshot.job.version > state.newest.job.version else { return nil }
      state.newest = snapshot
      state.events.formUnion(events)
      return state.events.isEmpty && !snapshot.job.isFinal ? nil : state.wake
    }
    wake?()
  }

  /// There will be nothing after what it has heard.
  /// - Parameter forgetting: the job is gone: what was not told yet stays untold.
  func end(forgetting: Bool) {
    let wake = state.withLock { state in
      state.hasEnded = true
      if forgetting { state.events = JobEvents() }
      return state.wake
    }
    wake?()
  }
}
