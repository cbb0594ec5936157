internal import Foundation
internal import Jobs

/// The changes of one operation to the references to images. They are collected first, so that each
/// image's counts are read and written once, however many rows change.
struct ReferenceChanges {
  private(set) var byDigest: [Data: ReferenceChange] = [:]

  init() {}

  /// The change of one job's row; `nil` means the row did not exist before or does not exist
  /// afterwards.
  init(from old: JobRow?, to new: JobRow?, holding job: Job?) {
    self.init()
    recordChange(from: old, to: new, job: job)
  }

  /// Records that a job's row was written.
  /// - Parameter job: the job in `new`, for its images' sizes.
  mutating func recordChange(from old: JobRow?, to new: JobRow?, job: Job?) {
    if let old, let new, old.refersAs(new) { return }
    for digest in old?.references ?? [] {
      byDigest[digest, default: .init()].removeReference(isSoft: old?.phase.isFinished == true)
    }
    for digest in new?.references ?? [] {
      byDigest[digest, default: .init()].addReference(
        isSoft: new?.phase.isFinished == true, at: new?.finishedAt)
      byDigest[digest]?.add(owner: new?.owner)
    }
    if let image = job?.keptImage { byDigest[image.keptDigest.data]?.bytes = image.keptBytes }
    if let source = job?.capturedSource { byDigest[source.digest.data]?.bytes = source.bytes }
  }

  /// Returns whether a reference to the image is added.
  func begins(_ digest: Data) -> Bool { byDigest[digest]?.begins ?? false }

  /// Records that a reservation was released.
  mutating func release(_ digest: Data) {
    byDigest[digest, default: .init()].removeReference(isSoft: false)
  }

  /// Records that a cache entry was stored.
  mutating func addEntry(_ digest: Data, bytes: Int, at moment: Timestamp) {
    byDigest[digest, default: .init()].addReference(isSoft: true, at: moment.milliseconds)
    byDigest[digest]?.bytes = bytes
  }

  /// Records that a cache entry was deleted.
  mutating func deleteEntry(_ digest: Data) {
    byDigest[digest, default: .init()].removeReference(isSoft: true)
  }
}

/// The changes to the references to one image. Hard references keep an image; images with only soft
/// ones can be evicted.
struct ReferenceChange {
  private(set) var hard = 0
  private(set) var soft = 0
  /// The earliest time among the added soft references.
  private(set) var finishedAt: Int64?
  /// Whether soft references were removed, possibly including the oldest one.
  private(set) var endsSoft = false
  /// Whether any reference is added.
  private(set) var begins = false
  /// The image's size in bytes, if a reference was added.
  var bytes = 0
  /// The owner of the jobs that refer to the image; see ``ImageRow/owner``.
  private(set) var owner: Data?

  /// Whether anything about the image changes.
  var hasChanges: Bool { hard != 0 || soft != 0 || endsSoft }

  fileprivate mutating func add(owner: Data?) {
    self.owner = ImageRow.owner(self.owner, and: owner)
  }

  /// The change made by a new reservation.
  static func reservation(bytes: Int) -> ReferenceChange {
    var change = ReferenceChange()
    change.addReference(isSoft: false, at: nil)
    change.bytes = bytes
    return change
  }

  fileprivate mutating func addReference(isSoft: Bool, at moment: Int64?) {
    begins = true
    guard isSoft else { return hard += 1 }
    soft += 1
    finishedAt = [finishedAt, moment].compactMap(\.self).min()
  }

  fileprivate mutating func removeReference(isSoft: Bool) {
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
