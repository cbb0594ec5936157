/// A client's subscription to events of jobs. It ends when it is released.
///
/// After a wake-up, the client's connection reads the newest state. Several changes since the last read are
/// delivered as one update. Therefore a slow client never slows a job and needs little memory.
package protocol JobSubscription: AnyObject, Sendable {
  /// Sets the function to call, from any thread, when an update may be available after ``next()`` returned
  /// `.nothing`.
  func onUpdate(_ wake: @escaping @Sendable () -> Void)

  /// Returns the next update. Never waits.
  func next() -> JobUpdate

  /// Keeps the end of the subscription from cancelling the job. Called when the service ends the
  /// subscription.
  func keepJobRunning()
}

extension JobSubscription {
  /// A subscription to several jobs cancels none.
  package func keepJobRunning() {}
}

/// The result of reading a subscription.
package enum JobUpdate: Sendable {
  /// The newest state of a job, and its events since the last update, in the order for clients.
  case job(JobSnapshot, [JobEvent])
  /// All events before this moment have been delivered.
  case caughtUp(Timestamp)
  /// No update is available.
  case nothing
  /// No more updates: the job has finished or was deleted, or the service stops.
  case end
}

/// Selects the jobs of a subscription to several jobs.
package struct SubscriptionQuery: Sendable, Equatable {
  /// The subscribing client. Only jobs visible to it are included.
  package var caller: Caller
  /// Only jobs in these phases; empty selects all.
  package var phases: Set<Phase> = []
  /// Only jobs with this tag.
  package var tag: String?
  /// The client has seen all events up to this moment. Jobs that finished later are delivered first, together
  /// with unfinished jobs. Nil delivers only unfinished jobs.
  package var seenUntil: Timestamp?

  /// A query for all jobs of the caller.
  package init(caller: Caller) { self.caller = caller }

  /// Whether the job, in its present state, is included.
  package func includes(_ job: Job) -> Bool {
    (phases.isEmpty || phases.contains(job.phase))
      && (tag.map { job.tags.contains(tag: $0) } ?? true)
  }
}
