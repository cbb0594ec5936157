/// One who hears what happens to jobs; listens for as long as it is held.
///
/// It is asked, and only then reads the newest state: what changed several times meanwhile is told once. So it never
/// slows a job, and however slow it is itself, it holds little.
public protocol JobSubscription: AnyObject, Sendable {
  /// Keeps what is to be called, from any thread, when there may be news after ``next()`` gave `.nothing`.
  func onUpdate(_ wake: @escaping @Sendable () -> Void)

  /// The next news. Never waits.
  func next() -> JobUpdate
}

/// What a listener hears.
public enum JobUpdate: Sendable {
  /// What happened to a job, in the order to be told, and how it is now.
  case job(JobSnapshot, [JobEvent])
  /// All that happened before that moment has been told.
  case caughtUp(Timestamp)
  /// Nothing at the moment.
  case nothing
  /// There will be no more: the job has finished or is gone, or the service stops.
  case end
}

/// What a listener to many jobs wants to hear.
public struct SubscriptionQuery: Sendable, Equatable {
  /// Who listens; hears of the jobs it may see.
  public var caller: Caller
  /// Phases in which a job is told of; empty: any.
  public var phases: Set<Phase> = []
  /// A tag that the job has.
  public var tag: String?
  /// What has been told before: all that happened until then. Jobs that finished later are told first of all, beside
  /// those that have not finished; nil: only the latter.
  public var seenUntil: Timestamp?

  /// All of the caller's jobs.
  public init(caller: Caller) { self.caller = caller }

  /// Whether it wants to hear of the job as it is now.
  package func wants(_ job: Job) -> Bool {
    (phases.isEmpty || phases.contains(job.phase)) && (tag.map(job.tags.contains) ?? true)
  }
}
