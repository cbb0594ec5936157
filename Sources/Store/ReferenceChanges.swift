internal import Foundation
internal import Jobs

/// How the references to images change by one operation. Collected first, so that each image's counts are read and
/// written once, however many rows come to refer to it or cease to.
struct ReferenceChanges {
  private(set) var byDigest: [Data: ReferenceChange] = [:]

  init() {}

  /// Of one job's row; nil where there is none before or after.
  init(from old: JobRow?, to new: JobRow?, holding job: Job?) {
    self.init()
    move(from: old, to: new, holding: job)
  }

  /// Notes that a job's row was written.
  /// - Parameter job: what `new` holds, for its images' sizes.
  mutating func move(from old: JobRow?, to new: JobRow?, holding job: Job?) {
    if let old, let new, old.refersAs(new) { return }
    for digest in old?.references ?? [] {
      byDigest[digest, default: .init()].end(old?.phase.isFinished == true)
    }
    for digest in new?.references ?? [] {
      byDigest[digest, default: .init()].begin(new?.phase.isFinished == true, new?.finishedAt)
      byDigest[digest]?.add(owner: new?.owner)
    }
    if let image = job?.keptImage { byDigest[image.keptDigest.data]?.bytes = image.keptBytes }
    if let source = job?.capturedSource { byDigest[source.digest.data]?.bytes = source.bytes }
  }

  /// Whether a reference to the image begins.
  func begins(_ digest: Data) -> Bool { byDigest[digest]?.begins ?? false }

  /// Notes that a reservation ended.
  mutating func release(_ digest: Data) { byDigest[digest, default: .init()].end(false) }

  /// Notes that a cache entry was stored.
  mutating func store(_ digest: Data, bytes: Int, at moment: Timestamp) {
    byDigest[digest, default: .init()].begin(true, moment.milliseconds)
    byDigest[digest]?.bytes = bytes
  }

  /// Notes that a cache entry is gone.
  mutating func drop(_ digest: Data) { byDigest[digest, default: .init()].end(true) }
}

/// How the references to one image change.
struct ReferenceChange {
  private(set) var hard = 0
  private(set) var soft = 0
  /// The oldest time among soft references that began.
  private(set) var finishedAt: Int64?
  /// Whether soft references ended: the oldest one may be among them.
  private(set) var endsSoft = false
  /// Whether any reference begins.
  private(set) var begins = false
  /// The image's size, where a reference began.
  var bytes = 0
  /// Whose jobs come to refer to it: see ``ImageRow/owner``.
  private(set) var owner: Data?

  /// Whether anything about the image changes.
  var isOne: Bool { hard != 0 || soft != 0 || endsSoft }

  fileprivate mutating func add(owner: Data?) {
    self.owner = ImageRow.owner(self.owner, and: owner)
  }

  /// That a reservation begins.
  static func reservation(bytes: Int) -> ReferenceChange {
    var change = ReferenceChange()
    change.begin(false, nil)
    change.bytes = bytes
    return change
  }

  fileprivate mutating func begin(_ isSoft: Bool, _ moment: Int64?) {
    begins = true
    guard isSoft else { return hard += 1 }
    soft += 1
    finishedAt = [finishedAt, moment].compactMap(\.self).min()
  }

  fileprivate mutating func end(_ isSoft: Bool) {
    guard isSoft else { return hard -= 1 }
    soft -= 1
    endsSoft = true
  }
}

extension JobRow {
  fileprivate var references: [Data] { [image, source].compactMap(\.self) }

  fileprivate func refersAs(_ other: JobRow) -> Bool {
    image == other.image && source == other.source && finishedAt == other.finishedAt
      && phase.isFinished == other.phase.isFinished
  }
}
