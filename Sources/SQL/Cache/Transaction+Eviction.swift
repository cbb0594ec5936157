internal import Jobs

/// The state of evictions in one transaction.
struct EvictionState {
  /// The number of references that may still be removed.
  var left = Transaction.maxRemovedReferences
  /// Images to evict that have more references than one transaction can remove.
  var crowded: [[UInt8]] = []
  /// The number of rounds of cache evictions.
  var trims = 0
  /// The number of rows to search for the oldest image.
  var looked = 16
  /// The number of rows to search for one owner's oldest image.
  var lookedOfOwner = 16
  /// Owners none of whose images can be evicted.
  var exhausted: Set<[UInt8]> = []
  /// Whether the transaction can evict nothing more.
  var isOver = false
}

/// Eviction of images: the images that finished jobs and the cache have referred to for the longest
/// time are evicted first.
///
/// An owner may use the whole limit while no other owner has images, and half of it otherwise. The
/// images of an owner above its share are evicted first. Other owners' images are evicted for it
/// only if each of its own oldest images is in use or has too many references. An image with jobs
/// of several owners counts for none of them.
///
/// Removing a reference writes a row, and a transaction has limited time. So it removes at most
/// ``maxRemovedReferences`` references, from as many images as time allows. An image with more references is
/// skipped, so that other images free space at once. Each transaction that skips it removes a
/// portion of its references. Until few are left, the image is stored and can get new references.
extension Transaction {
  /// The maximum number of references that one transaction removes; this takes a few hundred
  /// milliseconds.
  static let maxRemovedReferences = 2_000

  /// Evicts an image with all of its references. Jobs notice when they are read next; the cache
  /// entries are deleted.
  /// - Returns: the name of the file to remove; `nil` if the bytes are in the database.
  func evict(_ image: Image, for instance: Instance) throws -> ImageName? {
    let digest = SQLValue.bytes(image.digest)
    try execute("UPDATE jobs SET image = NULL, low = false WHERE image = $1", [digest])
    try execute("UPDATE jobs SET source = NULL WHERE source = $1", [digest])
    let entries = try execute(
      "DELETE FROM cache WHERE digest = $1 RETURNING length(record)", [digest])
    tallies[.entries] -= entries.count
    tallies[.recordBytes] -= entries.all.reduce(0) { $0 + Int(entries.int($1, 0) ?? 0) }
    if !entries.isEmpty { tallies[.entryBytes] -= image.bytes }
    try execute("DELETE FROM candidates WHERE digest = $1", [digest])
    return try remove([image], for: instance).first
  }

  /// Evicts images until the others fit or the transaction can do no more.
  /// - Parameter least: bytes to evict even after the time is up. This is the size of the new
  ///   image, so that the total does not grow.
  /// - Returns: the images whose files are to be removed.
  func evictImages(
    downTo limit: Int, atLeast least: Int, _ totals: Totals, for instance: Instance
  ) throws -> [ImageName] {
    var gone: [ImageName] = []
    let begun = totals[.imageBytes]
    while totals[.imageBytes] > limit, hasTime || begun - totals[.imageBytes] < least {
      if let name = try markUnreferenced(1, for: instance).first {
        gone.append(name)
        continue
      }
      // Deleting an image from the database returns no name.
      guard totals[.imageBytes] > limit else { break }
      let owner = try ownerOverShare(of: limit, totals)
      guard let image = try owner.flatMap(nextToEvict(of:)) ?? nextToEvict() else { break }
      if let name = try evict(image, for: instance) { gone.append(name) }
    }
    return gone
  }

  /// The maximum number of an owner's rows to search. Its jobs may refer to many images shared with
  /// other owners.
  private static let mostLookedOfOwner = 1_024

  /// Finds the oldest of an owner's images that is not in use.
  /// - Returns: `nil` if there is none among the oldest.
  private func nextToEvict(of owner: [UInt8]) throws -> Image? {
    guard !evictions.isOver, !evictions.exhausted.contains(owner) else { return nil }
    var seen: Set<[UInt8]> = []
    while hasTime {
      let oldest = try oldestImages(evictions.lookedOfOwner, of: owner)
      for digest in oldest.images where seen.insert(digest).inserted {
        guard hasTime else { break }
        if try isNeeded(digest) { continue }
        let references = try references(to: digest)
        guard references <= Self.maxRemovedReferences else { continue }
        guard references <= evictions.left else {
          evictions.isOver = true
          return nil
        }
        guard let image = try lockEvictable(digest) else { continue }
        evictions.left -= references
        return image
      }
      guard oldest.rows == evictions.lookedOfOwner,
        evictions.lookedOfOwner < Self.mostLookedOfOwner
      else { break }
      evictions.lookedOfOwner *= 4
    }
    evictions.exhausted.insert(owner)
    return nil
  }

  /// Finds the oldest image that is not in use.
  /// - Returns: `nil` if the transaction can do no more.
  private func nextToEvict() throws -> Image? {
    while !evictions.isOver {
      let crowded = evictions.crowded.count
      let oldest = try oldestImages(evictions.looked, but: evictions.crowded)
      for digest in oldest.images {
        if try isNeeded(digest) { continue }
        let references = try references(to: digest)
        guard references <= Self.maxRemovedReferences else {
          evictions.crowded.append(digest)
          continue
        }
        guard references <= evictions.left else {
          evictions.isOver = true
          return nil
        }
        if let image = try lockEvictable(digest) {
          evictions.left -= references
          return image
        }
      }
      // The rows of crowded images may have hidden others, so search again without them.
      if evictions.crowded.count > crowded { continue }
      if oldest.rows < evictions.looked {
        guard !evictions.crowded.isEmpty else {
          throw StoreError.unavailable(detail: "the byte count of images is wrong")
        }
        evictions.isOver = true
      } else {
        evictions.looked *= 4
      }
    }
    return nil
  }

  private func lockEvictable(_ digest: [UInt8]) throws -> Image? {
    guard let image = try lockedImages([digest]).first, !image.isPendingDeletion,
      try !isNeeded(digest)
    else { return nil }
    return image
  }

  /// Counts the references to an image, up to one more than ``maxRemovedReferences``. Reservations are not
  /// counted: they keep the image in use.
  func references(to digest: [UInt8]) throws -> Int {
    let rows = try execute(
      """
      SELECT count(*) FROM (SELECT 1 FROM jobs WHERE image = $1
        UNION ALL SELECT 1 FROM jobs WHERE source = $1
        UNION ALL SELECT 1 FROM cache WHERE digest = $1 LIMIT $2) AS found
      """, [.bytes(digest), .int(Int64(Self.maxRemovedReferences) + 1)])
    return Int(rows.int(0, 0) ?? 0)
  }

  /// Removes references to a crowded image. Runs last, because freeing space for others comes
  /// first.
  func removeCrowdedReferences() throws {
    // Lock the image's row before the rows that refer to it, as all transactions do. The image may
    // be in use by now.
    guard let digest = evictions.crowded.first, evictions.left > 0, try lockEvictable(digest) != nil
    else { return }
    _ = try removeReferences(to: digest, atMost: evictions.left)
  }

  /// Removes up to `count` references to an image, cache entries first, so that later requests
  /// fetch it again. Skips rows that other transactions have locked.
  /// - Returns: the jobs that lost the image.
  func removeReferences(to digest: [UInt8], atMost count: Int) throws -> [JobID] {
    var left = count
    left -= try deleteEntries(
      where: "number IN (SELECT number FROM cache WHERE digest = $1 LIMIT $2)",
      [.bytes(digest), .int(Int64(left))]
    ).count
    let jobs = try execute(
      """
      UPDATE jobs SET image = NULL, low = false WHERE id IN (
        SELECT id FROM jobs WHERE image = $1 LIMIT $2 FOR UPDATE SKIP LOCKED)
      RETURNING id
      """, [.bytes(digest), .int(Int64(left))])
    left -= jobs.count
    left -= try execute(
      """
      UPDATE jobs SET source = NULL WHERE id IN (
        SELECT id FROM jobs WHERE source = $1 AND phase > 0 LIMIT $2 FOR UPDATE SKIP LOCKED)
      """, [.bytes(digest), .int(Int64(left))]
    ).changes
    if left > 0 { try addDeletionCandidates([digest]) }
    return jobs.all.compactMap { jobs.id($0, 0) }
  }

  /// Returns the images that belong to this owner alone among its `count` oldest rows, and the
  /// number of these rows.
  private func oldestImages(
    _ count: Int, of owner: [UInt8]
  ) throws -> (images: [[UInt8]], rows: Int) {
    let rows = try execute(Self.oldestImagesOfOwner, [.int(Int64(count)), .bytes(owner)])
    return (
      rows.all.filter { rows.bool($0, 2) }.compactMap { rows.bytes($0, 0) },
      rows.all.reduce(0) { $0 + Int(rows.int($1, 1) ?? 0) }
    )
  }

  static let oldestImagesOfOwner = """
    SELECT digest, count(*), EXISTS (
      SELECT 1 FROM images i WHERE i.digest = oldest.digest AND i.owner = $2 AND NOT i.leaving)
    FROM (SELECT digest, since FROM (
        SELECT * FROM (SELECT image AS digest, finished_at AS since FROM jobs
          WHERE owner = $2 AND image IS NOT NULL ORDER BY finished_at, image LIMIT $1) AS results
        UNION ALL SELECT * FROM (SELECT source, finished_at FROM jobs
          WHERE owner = $2 AND source IS NOT NULL AND finished_at IS NOT NULL
          ORDER BY finished_at, source LIMIT $1) AS sources
        UNION ALL SELECT * FROM (SELECT digest, stored FROM cache
          WHERE owner = $2 ORDER BY number LIMIT $1) AS entries) AS kept
      ORDER BY since, digest LIMIT $1) AS oldest
    GROUP BY digest ORDER BY min(since), digest
    """

  /// Returns the images of the `count` oldest rows, and the number of these rows.
  private func oldestImages(
    _ count: Int, but others: [[UInt8]]
  ) throws -> (images: [[UInt8]], rows: Int) {
    let rows = try execute(
      """
      SELECT digest, count(*) FROM (SELECT digest, since FROM (
        SELECT * FROM (SELECT image AS digest, finished_at AS since FROM jobs
          WHERE image IS NOT NULL AND image <> ALL ($2) ORDER BY finished_at, image LIMIT $1) AS results
        UNION ALL SELECT * FROM (SELECT source, finished_at FROM jobs
          WHERE source IS NOT NULL AND source <> ALL ($2) AND finished_at IS NOT NULL
          ORDER BY finished_at, source LIMIT $1) AS sources
        UNION ALL SELECT * FROM (SELECT digest, stored FROM cache
          WHERE digest <> ALL ($2) ORDER BY number LIMIT $1) AS entries) AS kept
      ORDER BY since, digest LIMIT $1) AS oldest
      GROUP BY digest ORDER BY min(since), digest
      """, [.int(Int64(count)), .byteStrings(others)])
    return (
      rows.all.compactMap { rows.bytes($0, 0) },
      rows.all.reduce(0) { $0 + Int(rows.int($1, 1) ?? 0) }
    )
  }
}
