internal import Foundation
internal import GRDB
internal import Jobs

/// The result of one transaction that removes references to an image.
struct ReferenceRemoval: Sendable {
  /// The jobs that lost the image.
  var jobs: [JobID]
  /// Whether further references are left.
  var isMore = false
}

/// Eviction of images: the images that finished jobs and the cache have referred to for the longest
/// time are evicted first.
///
/// An owner may use the whole limit while no other owner has images, and half of it otherwise. The
/// images of an owner above its share are evicted first, so that no owner can evict images that
/// others have just fetched. An image with jobs of several owners counts for none of them.
///
/// Removing a reference writes a row, and all other writes wait. So a transaction removes at most
/// ``maxRemovedReferences`` references. An image with more references is skipped, so that other images free
/// space at once. Each transaction that skips it removes a portion of its references. Until few are
/// left, the image is stored and can get new references.
extension WriteTransaction {
  /// The maximum number of references that one transaction removes.
  static let maxRemovedReferences = 2_000

  /// Evicts images until the others fit or the transaction can do no more.
  /// - Parameter gone: receives the images whose files are to be removed.
  /// - Returns: whether the others fit.
  mutating func evictImages(
    downTo limit: Int, for instance: Instance, _ gone: inout [ImageDigest]
  ) throws -> Bool {
    var crowded: Data?
    while counters.imageBytes > limit {
      if let digest = try markUnreferenced(1, for: instance).first {
        gone.append(digest)
        continue
      }
      let owner = counters.imageOwners.ownerOverShare(of: limit, total: counters.imageBytes)
      guard let oldest = try oldestImage(sharedByAtMost: .max, of: owner) else {
        throw StoreError.unavailable(detail: "the byte count of images is wrong")
      }
      var next: (digest: Data, image: ImageRow)? = oldest
      if oldest.image.soft > Self.maxRemovedReferences {
        crowded = oldest.digest
        // An owner above its share must not cause the eviction of others' images because each of
        // its own has very many references.
        next =
          if let owner {
            try one(Self.oldestImageOfOwner, [Self.maxRemovedReferences, owner]).map {
              ($0[7], ImageRow($0))
            }
          } else {
            try oldestImage(sharedByAtMost: Self.maxRemovedReferences, of: nil)
          }
      }
      guard let (digest, image) = next, image.soft <= removableReferences else { break }
      removableReferences -= image.soft
      try evict(digest, image, for: instance)
      if !image.isEmbedded, let name = ImageDigest(bytes: digest) { gone.append(name) }
    }
    // Runs last, because freeing space for other images comes first.
    if let crowded, removableReferences > 0 {
      _ = try removeReferences(to: crowded, atMost: removableReferences)
      removableReferences = 0
    }
    return counters.imageBytes <= limit
  }

  /// Returns the oldest image that is not in use.
  /// - Parameter owner: the owner whose images are evicted first; if it has none, any other image
  ///   is returned.
  private func oldestImage(
    sharedByAtMost count: Int, of owner: Data?
  ) throws -> (digest: Data, image: ImageRow)? {
    if let owner, let image = try one(Self.oldestImageOfOwner, [count, owner]) {
      return (image[7], ImageRow(image))
    }
    return try one(
      "\(Self.evictableImages) ORDER BY finished_at LIMIT 1", [count]
    ).map { ($0[7], ImageRow($0)) }
  }

  private static let evictableImages = """
    SELECT \(ImageRow.columns), digest FROM images
    WHERE hard = 0 AND soft > 0 AND leaving = 0 AND soft <= ?
    """

  static let oldestImageOfOwner =
    "\(evictableImages) AND owner = ? ORDER BY finished_at LIMIT 1"

  /// Removes a portion of the references to an image, however much space is free, unless the image
  /// is in use.
  /// - Returns: `nil` if the image stays or does not exist.
  mutating func removeReferences(to digest: Data, for instance: Instance) throws
    -> ReferenceRemoval?
  {
    guard let known = try image(digest), !known.isPendingDeletion, known.hard == 0 else {
      return nil
    }
    guard known.soft <= Self.maxRemovedReferences else {
      return ReferenceRemoval(
        jobs: try removeReferences(to: digest, atMost: Self.maxRemovedReferences), isMore: true)
    }
    let jobs = try all("SELECT id FROM jobs WHERE image = ?", [digest])
    try evict(digest, known, for: instance)
    return ReferenceRemoval(jobs: jobs.compactMap { JobID(data: $0[0]) })
  }

  /// Evicts an image with all of its references. Jobs notice when they are read next; the cache
  /// entries are deleted.
  private mutating func evict(
    _ digest: Data, _ image: ImageRow, for instance: Instance
  ) throws {
    try execute("UPDATE jobs SET image = NULL, low = NULL WHERE image = ?", [digest])
    try execute("UPDATE jobs SET source = NULL WHERE source = ?", [digest])
    // The image's row is deleted too, so these changes are discarded.
    var references = ReferenceChanges()
    _ = try deleteRows(where: "digest = ?", [digest], &references)
    if image.isEmbedded {
      try removeEmbedded(digest, bytes: image.bytes)
    } else {
      try markPendingDeletion(digest, bytes: image.bytes, for: instance)
    }
  }

  /// Removes up to `count` references to an image that is not in use, cache entries first, so that
  /// later requests fetch it again. The image must have more references.
  /// - Returns: the jobs that lost the image.
  private mutating func removeReferences(to digest: Data, atMost count: Int) throws -> [JobID] {
    var left = count
    left -= try deleteEntries(
      where: "number IN (SELECT number FROM cache WHERE digest = ? LIMIT ?)", [digest, left])
    let jobs = try all(
      """
      UPDATE jobs SET image = NULL, low = NULL WHERE number IN
        (SELECT number FROM jobs WHERE image = ? LIMIT ?) RETURNING id
      """, [digest, left])
    left -= jobs.count
    let sources = try execute(
      """
      UPDATE jobs SET source = NULL WHERE number IN
        (SELECT number FROM jobs WHERE source = ? LIMIT ?)
      """, [digest, left])
    try execute(
      "UPDATE images SET soft = soft - ?, finished_at = ? WHERE digest = ?",
      [jobs.count + sources, try oldestFinish(of: digest), digest])
    return jobs.compactMap { JobID(data: $0[0]) }
  }
}
