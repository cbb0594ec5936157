/// A client's subscription to what happens to jobs; it lasts as long as it is held.
///
/// Its owner reads from it when woken, and gets the newest state: several changes since the last reading come as one.
/// So a subscription never slows a job, and holds little however slow its client is.
public protocol JobSubscription: AnyObject, Sendable {
  /// Keeps what is to be called, from any thread, when there may be an update after ``next()`` gave `.nothing`.
  func onUpdate(_ wake: @escaping @Sendable () -> Void)

  /// The next update. Never waits.
  func next() -> JobUpdate

  /// Has its end cancel no job from now on: it is the service that ends it.
  func letJobGoOn()
}

extension JobSubscription {
  /// One to many jobs cancels none anyway.
  public func letJobGoOn() {}
}

/// What comes from a subscription.
public enum JobUpdate: Sendable {
  /// A job as it is now, and what happened to it since the last update, in the order in which clients get it.
  case job(JobSnapshot, [JobEvent])
  /// All that happened before that moment has come.
  case caughtUp(Timestamp)
  /// Nothing at the moment.
  case nothing
  /// There will be no more: the job has finished or is gone, or the service stops.
  case end
}

/// What a subscription to many jobs is about.
public struct SubscriptionQuery: Sendable, Equatable {
  /// Who subscribes: to the jobs that it may see.
  public var caller: Caller
  /// Phases in which a job counts; empty: any.
  public var phases: Set<Phase> = []
  /// A tag that the job has.
  public var tag: String?
  /// The client has seen all that happened until then: jobs that finished later come first, beside those that have not
  /// finished; nil: only the latter come.
  public var seenUntil: Timestamp?

  /// All of the caller's jobs.
  public init(caller: Caller) { self.caller = caller }

  /// Whether the job counts as it is now.
  package func wants(_ job: Job) -> Bool {
    (phases.isEmpty || phases.contains(job.phase))
      && (tag.map { job.tags.contains(tag: $0) } ?? true)
  }
}
