/// What happened to a job, by the names under which clients are told.
public enum JobEvent: String, Sendable, CaseIterable {
  /// It is in another phase; also what a listener hears first of a job.
  case phase
  /// More of its bytes came, or they are counted anew.
  case progress
  /// There is a newer rendering of the picture so far.
  case preview
  /// Its image is there, or another took its place.
  case image
}

/// Which events tell a change of a job. Several changes that are told at once are told by all that belong to any.
package struct JobEvents: Sendable, Equatable {
  package private(set) var members: Set<JobEvent> = []

  package var isEmpty: Bool { members.isEmpty }

  /// Whether it can wait a little: there will be more of it.
  package var isOnlyProgress: Bool { members == [.progress] }

  /// Nothing.
  package init() {}

  /// The rule: what a client is told when `new` takes the place of `old`; nil: when it has heard nothing of the job.
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

  /// The events in the order in which they are told. A phase is told before what happens in it, an end after what led
  /// there: a client that stops listening when it hears of the end has heard all.
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
  /// Whether clients that listen have heard the last of it, unless its owner wants something else. A low-data image
  /// gives way to the regular one as soon as the network allows.
  public var isFinal: Bool { phase.isFinished && image?.variant != .lowData }
}
