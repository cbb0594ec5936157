internal import Foundation
internal import GRDB
internal import Jobs

/// What a transaction came to that lets an image go.
struct ImageLoss: Sendable {
  /// Those that had it until then.
  var jobs: [JobID]
  /// Whether others are left.
  var isMore = false
}

/// Room for images: those give way that finished jobs and the cache have had for the longest.
///
/// An owner may use all of it while no other has images, and half of it while others do: an owner that has more loses its
/// own images first. So no owner can evict images that other owners have just fetched. An image that jobs of several owners refer to is
/// none of theirs.
///
/// Each that lets go of one is a row to be written, and everybody waits for the one who writes: a transaction does that for
/// a portion of them. An image that more refer to is passed over, so that others make room at once, and a portion of its jobs
/// and entries lose it by each transaction that passes it. Until few are left it is kept, and new ones may refer to it.
extension WriteTransaction {
  /// So many jobs and entries let go of their images in one transaction.
  static let portion = 2_000

  /// Lets images go until the others fit, or the transaction can do no more for that.
  /// - Parameter gone: gets those whose bytes are files, which are still to be removed.
  /// - Returns: whether the others fit.
  mutating func makeRoom(
    within limit: Int, for instance: Instance, _ gone: inout [ImageDigest]
  ) throws -> Bool {
    var crowded: Data?
    while counters.imageBytes > limit {
      if let digest = try leave(abandoned: 1, for: instance).first {
        gone.append(digest)
        continue
      }
      let owner = counters.imageOwners.overShare(of: limit, among: counters.imageBytes)
      guard let oldest = try oldestImage(sharedByAtMost: .max, of: owner) else {
        throw StoreError.unavailable(detail: "the images' bytes were counted wrong")
      }
      var next: (digest: Data, image: ImageRow)? = oldest
      if oldest.image.soft > Self.portion {
        crowded = oldest.digest
        // An owner with too much does not have others' images evicted because each of its own has very many jobs.
        next =
          if let owner {
            try one(Self.oldestImageOfOwner, [Self.portion, owner]).map { ($0[7], ImageRow($0)) }
          } else {
            try oldestImage(sharedByAtMost: Self.portion, of: nil)
          }
      }
      guard let (digest, image) = next, image.soft <= yielding else { break }
      yielding -= image.soft
      try evict(digest, image, for: instance)
      if !image.isEmbedded, let name = ImageDigest(bytes: digest) { gone.append(name) }
    }
    // Others' room comes first.
    if let crowded, yielding > 0 {
      _ = try thinOut(crowded, by: yielding)
      yielding = 0
    }
    return counters.imageBytes <= limit
  }

  /// The one that they have had for the longest, of those that nothing needs.
  /// - Parameter owner: whose images go first; any other goes where the owner has none.
  private func oldestImage(
    sharedByAtMost count: Int, of owner: Data?
  ) throws -> (digest: Data, image: ImageRow)? {
    if let owner, let image = try one(Self.oldestImageOfOwner, [count, owner]) {
      return (image[7], ImageRow(image))
    }
    return try one(
      "\(Self.yieldingImages) ORDER BY finished_at LIMIT 1", [count]
    ).map { ($0[7], ImageRow($0)) }
  }

  private static let yieldingImages = """
    SELECT \(ImageRow.columns), digest FROM images
    WHERE hard = 0 AND soft > 0 AND leaving = 0 AND soft <= ?
    """

  static let oldestImageOfOwner =
    "\(yieldingImages) AND owner = ? ORDER BY finished_at LIMIT 1"

  /// Has a portion of those that refer to an image let go of it, whatever room there is, unless something needs it.
  /// - Returns: nil where it stays or isn't there.
  mutating func lose(_ digest: Data, for instance: Instance) throws -> ImageLoss? {
    guard let known = try image(digest), !known.isPendingDeletion, known.hard == 0 else {
      return nil
    }
    guard known.soft <= Self.portion else {
      return ImageLoss(jobs: try thinOut(digest, by: Self.portion), isMore: true)
    }
    let jobs = try all("SELECT id FROM jobs WHERE image = ?", [digest])
    try evict(digest, known, for: instance)
    return ImageLoss(jobs: jobs.compactMap { JobID(data: $0[0]) })
  }

  /// The jobs' records learn of it when they are next read; the cache knows its responses no more.
  private mutating func evict(
    _ digest: Data, _ image: ImageRow, for instance: Instance
  ) throws {
    try execute("UPDATE jobs SET image = NULL, low = NULL WHERE image = ?", [digest])
    try execute("UPDATE jobs SET source = NULL WHERE source = ?", [digest])
    // Its references are all gone with it: none of them is to be noted.
    var references = ReferenceChanges()
    _ = try dropRows("digest = ?", [digest], &references)
    if image.isEmbedded {
      try removeEmbedded(digest, bytes: image.bytes)
    } else {
      try leave(digest, bytes: image.bytes, for: instance)
    }
  }

  /// Has so many let go of an image that nothing needs, entries of the cache first: who asks for it from then on has it
  /// fetched anew. More than these must refer to it.
  /// - Returns: the jobs that had it.
  private mutating func thinOut(_ digest: Data, by count: Int) throws -> [JobID] {
    var left = count
    left -= try dropEntries(
      "number IN (SELECT number FROM cache WHERE digest = ? LIMIT ?)", [digest, left])
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
