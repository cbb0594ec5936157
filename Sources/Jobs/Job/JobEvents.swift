/// The events of a job, named as in the API.
package enum JobEvent: String, Sendable, CaseIterable {
  /// The phase changed. Also the first event of each job in a subscription.
  case phase
  /// More bytes arrived, or the count of bytes started again.
  case progress
  /// A newer preview exists.
  case preview
  /// The image is available, or another image replaced it.
  case image
}

/// The events of a change of a job. Changes that are delivered together have the events of all of them.
package struct JobEvents: Sendable, Equatable {
  private(set) var members: Set<JobEvent> = []

  package var isEmpty: Bool { members.isEmpty }

  /// Whether the events can be delayed a little, because more progress will follow.
  package var isOnlyProgress: Bool { members == [.progress] }

  /// No events.
  package init() {}

  /// The events of the change from `old` to `new`. `old` is nil for a client that has not seen the job.
  package init(from old: Job?, to new: Job) {
    guard let old else {
      members = [.phase]
      if new.previews > 0 { members.insert(.preview) }
      if new.image != nil { members.insert(.image) }
      return
    }
    // A new `finishedAt` in the same phase means that the job was fetched again and finished between two
    // updates.
    if old.phase != new.phase || old.finishedAt != new.finishedAt { members.insert(.phase) }
    if old.progress != new.progress { members.insert(.progress) }
    if new.previews > old.previews { members.insert(.preview) }
    if let image = new.image, old.image.map(ImageIdentity.init) != ImageIdentity(image) {
      members.insert(.image)
    }
  }

  package mutating func formUnion(_ others: JobEvents) { members.formUnion(others.members) }

  /// Returns the events in the order for clients: `phase` comes before the events within the phase, but the
  /// phase of a finished job comes last. So a client that stops reading at the end has received everything.
  package func ordered(for job: Job, isFirst: Bool) -> [JobEvent] {
    let others = [JobEvent.progress, .preview, .image].filter(members.contains)
    guard members.contains(.phase) else { return others }
    return job.phase.isFinished && !isFirst ? others + [.phase] : [.phase] + others
  }
}

/// The properties whose change makes the image a different one for clients.
private struct ImageIdentity: Equatable {
  let digest: ImageDigest
  let variant: SourceVariant
  let url: SourceURL?

  init(_ image: StoredImage) { (digest, variant, url) = (image.digest, image.variant, image.url) }
}

extension Job {
  /// Whether the job changes no more unless its owner requests it. A low-data image will still be replaced by
  /// the regular one, unless its client saves data.
  package var isFinal: Bool { phase.isFinished && !hasLowDataImage }
}

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

/// The condition that a long poll waits for.
package enum WaitCondition: Sendable, Equatable {
  /// The job has finished.
  case finished
  /// The job's version differs from this one.
  case versionOtherThan(Int)

  /// Whether the job meets the condition.
  package func isMet(by job: Job) -> Bool {
    switch self {
    case .finished: job.phase.isFinished
    case .versionOtherThan(let version): job.version != version
    }
  }
}
