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
  package private(set) var members: Set<JobEvent> = []

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
