internal import Jobs

/// What a transaction has done to make room.
struct GivingWay {
  /// Jobs and entries that may still let go of their images.
  var left = Transaction.portion
  /// Images that have to give way and that more refer to than one transaction can have let go of them.
  var crowded: [[UInt8]] = []
  /// How often it has let entries of the cache go.
  var trims = 0
  /// How far it has looked.
  var looked = 16
  /// How far it has looked among one owner's.
  var lookedOfOwner = 16
  /// Owners of whose images none can give way.
  var exhausted: Set<[UInt8]> = []
  /// Whether it can do no more.
  var isOver = false
}

/// Room for images: those give way that finished jobs and the cache have had for the longest.
///
/// An owner may use all of it while no other has images, and half of it while others do: an owner that has more loses its
/// own images first. It can evict other owners' images only while each of its own oldest is in use or belongs to very many
/// jobs. An image that jobs of several owners refer to is none of theirs.
///
/// Each that lets go of one is a row to be written, and a transaction has its time: it does that for a portion of them, and
/// for as many images as it has the time for.
/// An image that more refer to is passed over, so that others make room at once, and a portion of its jobs and entries
/// lose it by each transaction that passes it. Until few are left it is kept, and new ones may refer to it.
extension Transaction {
  /// So many jobs and entries let go of their images in one transaction: some tenths of a second.
  static let portion = 2_000

  /// Lets an image go whatever refers to it; the jobs' records learn of it when they are next read, and the cache knows
  /// its responses no more.
  /// - Returns: the file that is to be removed.
  func evict(_ image: Image, for instance: Instance) throws -> ImageName? {
    let digest = SQLValue.bytes(image.digest)
    try execute("UPDATE jobs SET image = NULL, low = false WHERE image = $1", [digest])
    try execute("UPDATE jobs SET source = NULL WHERE source = $1", [digest])
    let entries = try execute(
      "DELETE FROM cache WHERE digest = $1 RETURNING octet_length(record)", [digest])
    tallies[.entries] -= entries.count
    tallies[.recordBytes] -= entries.all.reduce(0) { $0 + Int(entries.int($1, 0) ?? 0) }
    if !entries.isEmpty { tallies[.entryBytes] -= image.bytes }
    try execute("DELETE FROM candidates WHERE digest = $1", [digest])
    return try remove([image], for: instance).first
  }

  /// Lets images go until the others fit, or a transaction can do no more for that.
  /// - Parameter least: bytes that go however long that takes: those of what comes, else what is kept would grow.
  /// - Returns: those whose files are to be removed.
  func makeRoom(
    within limit: Int, atLeast least: Int, _ totals: Totals, for instance: Instance
  ) throws -> [ImageName] {
    var gone: [ImageName] = []
    let begun = totals[.imageBytes]
    while totals[.imageBytes] > limit, hasTime || begun - totals[.imageBytes] < least {
      if let name = try leave(abandoned: 1, for: instance).first {
        gone.append(name)
        continue
      }
      // What is embedded leaves no name.
      guard totals[.imageBytes] > limit else { break }
      let owner = try ownerOverShare(of: limit, totals)
      guard let image = try owner.flatMap(nextToGiveWay(of:)) ?? nextToGiveWay() else { break }
      if let name = try evict(image, for: instance) { gone.append(name) }
    }
    return gone
  }

  /// The most rows of an owner that are looked at: jobs may refer to many images that are not the owner's alone.
  private static let mostLookedOfOwner = 1_024

  /// The one of an owner's images that it has had for the longest, of those that nothing needs.
  /// - Returns: nil where none is found among the oldest.
  private func nextToGiveWay(of owner: [UInt8]) throws -> Image? {
    guard !givingWay.isOver, !givingWay.exhausted.contains(owner) else { return nil }
    var seen: Set<[UInt8]> = []
    while hasTime {
      let oldest = try oldestImages(givingWay.lookedOfOwner, of: owner)
      for digest in oldest.images where seen.insert(digest).inserted {
        guard hasTime else { break }
        if try isNeeded(digest) { continue }
        let references = try references(to: digest)
        guard references <= Self.portion else { continue }
        guard references <= givingWay.left else {
          givingWay.isOver = true
          return nil
        }
        guard let image = try yielding(digest) else { continue }
        givingWay.left -= references
        return image
      }
      guard oldest.rows == givingWay.lookedOfOwner,
        givingWay.lookedOfOwner < Self.mostLookedOfOwner
      else { break }
      givingWay.lookedOfOwner *= 4
    }
    givingWay.exhausted.insert(owner)
    return nil
  }

  /// The one that they have had for the longest, of those that nothing needs.
  /// - Returns: nil where the transaction can do no more.
  private func nextToGiveWay() throws -> Image? {
    while !givingWay.isOver {
      let crowded = givingWay.crowded.count
      let oldest = try oldestImages(givingWay.looked, but: givingWay.crowded)
      for digest in oldest.images {
        if try isNeeded(digest) { continue }
        let references = try references(to: digest)
        guard references <= Self.portion else {
          givingWay.crowded.append(digest)
          continue
        }
        guard references <= givingWay.left else {
          givingWay.isOver = true
          return nil
        }
        if let image = try yielding(digest) {
          givingWay.left -= references
          return image
        }
      }
      // What is behind its many rows is not known yet.
      if givingWay.crowded.count > crowded { continue }
      if oldest.rows < givingWay.looked {
        guard !givingWay.crowded.isEmpty else {
          throw StoreError.unavailable(detail: "the images' bytes were counted wrong")
        }
        givingWay.isOver = true
      } else {
        givingWay.looked *= 4
      }
    }
    return nil
  }

  private func yielding(_ digest: [UInt8]) throws -> Image? {
    guard let image = try lockedImages([digest]).first, !image.isLeaving,
      try !isNeeded(digest)
    else { return nil }
    return image
  }

  /// How many refer to an image, as far as a portion goes; reservations, which need it, are not among them.
  func references(to digest: [UInt8]) throws -> Int {
    let rows = try execute(
      """
      SELECT count(*) FROM (SELECT 1 FROM jobs WHERE image = $1
        UNION ALL SELECT 1 FROM jobs WHERE source = $1
        UNION ALL SELECT 1 FROM cache WHERE digest = $1 LIMIT $2) AS found
      """, [.bytes(digest), .int(Int64(Self.portion) + 1)])
    return Int(rows.int(0, 0) ?? 0)
  }

  /// Has some of those let go that refer to a crowded image; done last, as others' room comes first.
  func thinOut() throws {
    // Its row is locked before those that refer to it, as by everybody; and it may be needed by now.
    guard let digest = givingWay.crowded.first, givingWay.left > 0, try yielding(digest) != nil
    else { return }
    _ = try thinOut(digest, by: givingWay.left)
  }

  /// Has so many let go of an image, entries of the cache first: who asks for it from then on has it fetched anew. Those
  /// that others are just changing are passed over.
  /// - Returns: the jobs that had it.
  func thinOut(_ digest: [UInt8], by count: Int) throws -> [JobID] {
    var left = count
    left -= try dropEntries(
      "number IN (SELECT number FROM cache WHERE digest = $1 LIMIT $2)",
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
    if left > 0 { try noteCandidates([digest]) }
    return jobs.all.compactMap { jobs.id($0, 0) }
  }

  /// The images of so many rows of an owner that are the owner's alone, each once, and how many rows there were.
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
      SELECT FROM images i WHERE i.digest = oldest.digest AND i.owner = $2 AND NOT i.leaving)
    FROM (SELECT digest, since FROM (
        (SELECT image AS digest, finished_at AS since FROM jobs
          WHERE owner = $2 AND image IS NOT NULL ORDER BY finished_at, image LIMIT $1)
        UNION ALL (SELECT source, finished_at FROM jobs
          WHERE owner = $2 AND source IS NOT NULL AND finished_at IS NOT NULL
          ORDER BY finished_at, source LIMIT $1)
        UNION ALL (SELECT digest, stored FROM cache
          WHERE owner = $2 ORDER BY stored, digest LIMIT $1)) kept
      ORDER BY since, digest LIMIT $1) oldest
    GROUP BY digest ORDER BY min(since), digest
    """

  /// The images of so many rows, each once, and how many rows there were.
  private func oldestImages(
    _ count: Int, but others: [[UInt8]]
  ) throws -> (images: [[UInt8]], rows: Int) {
    let rows = try execute(
      """
      SELECT digest, count(*) FROM (SELECT digest, since FROM (
        (SELECT image AS digest, finished_at AS since FROM jobs
          WHERE image IS NOT NULL AND image <> ALL($2) ORDER BY finished_at, image LIMIT $1)
        UNION ALL (SELECT source, finished_at FROM jobs
          WHERE source IS NOT NULL AND source <> ALL($2) AND finished_at IS NOT NULL
          ORDER BY finished_at, source LIMIT $1)
        UNION ALL (SELECT digest, stored FROM cache
          WHERE digest <> ALL($2) ORDER BY stored, digest LIMIT $1)) kept
      ORDER BY since, digest LIMIT $1) oldest
      GROUP BY digest ORDER BY min(since), digest
      """, [.int(Int64(count)), .byteStrings(others)])
    return (
      rows.all.compactMap { rows.bytes($0, 0) },
      rows.all.reduce(0) { $0 + Int(rows.int($1, 1) ?? 0) }
    )
  }
}
