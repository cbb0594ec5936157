/// What happened to a job, by the names that clients get.
public enum JobEvent: String, Sendable, CaseIterable {
  /// It is in another phase; also the first event that a subscription has of a job.
  case phase
  /// More of its bytes came, or they are counted anew.
  case progress
  /// There is a newer rendering of the picture so far.
  case preview
  /// Its image is there, or another took its place.
  case image
}

/// The events of a change of a job. Several changes that come as one have the events of all of them.
package struct JobEvents: Sendable, Equatable {
  package private(set) var members: Set<JobEvent> = []

  package var isEmpty: Bool { members.isEmpty }

  /// Whether it can wait a little: there will be more of it.
  package var isOnlyProgress: Bool { members == [.progress] }

  /// Nothing.
  package init() {}

  /// The rule: the events when `new` takes the place of `old`; nil: for a client that knows nothing of the job.
  package init(from old: Job?, to new: Job) {
    guard let old else {
      members = [.phase]
      if new.previews > 0 { members.insert(.preview) }
      if new.image != nil { members.insert(.image) }
      return
    }
    // A new end without a new phase: it was fetched again meanwhile, and nobody looked.
    if old.phase != new.phase || old.finishedAt != new.finishedAt { members.insert(.phase) }
    if old.progress != new.progress { members.insert(.progress) }
    if new.previews > old.previews { members.insert(.preview) }
    if let image = new.image, old.image.map(Picture.init) != Picture(image) {
      members.insert(.image)
    }
  }

  package mutating func formUnion(_ others: JobEvents) { members.formUnion(others.members) }

  /// The events in the order in which clients get them. A phase comes before what happens in it, an end after what led
  /// there: a client that stops reading at the end has got all.
  package func ordered(for job: Job, isFirst: Bool) -> [JobEvent] {
    let others = [JobEvent.progress, .preview, .image].filter(members.contains)
    guard members.contains(.phase) else { return others }
    return job.phase.isFinished && !isFirst ? others + [.phase] : [.phase] + others
  }
}

/// What makes an image another one to a client.
private struct Picture: Equatable {
  let digest: ImageDigest
  let variant: SourceVariant
  let url: SourceURL?

  init(_ image: StoredImage) { (digest, variant, url) = (image.digest, image.variant, image.url) }
}

extension Job {
  /// Whether nothing will happen to it any more, unless its owner wants something else. A low-data image is replaced by
  /// the regular one as soon as the network allows, unless its client saves data.
  public var isFinal: Bool { phase.isFinished && !hasLowDataImage }
}
