internal import Jobs

/// References to images, and their deletion.
///
/// References are not counted. A transaction that adds a reference holds a shared lock on the
/// image's row. A transaction that deletes an image locks the row exclusively and then searches for
/// references.
extension Transaction {
  /// Locks the rows of images before references to them are added. All transactions use the same
  /// order.
  /// - Parameters:
  ///   - toCount: whether the rows' counters will be changed.
  ///   - owners: the owners of the jobs that refer to the images; see ``Image/owner``.
  /// - Returns: for each existing image, whether it is pending deletion.
  func lockForReferences(
    _ digests: some Collection<[UInt8]>, toCount: Bool = false, owners: [[UInt8]: [UInt8]] = [:]
  ) throws -> [[UInt8]: Bool] {
    guard !digests.isEmpty else { return [:] }
    // If the owner changes, an exclusive lock is needed from the start: two transactions that
    // upgrade a shared lock deadlock.
    let lock =
      try toCount || isOnlyWriter || changesOwner(owners) ? "FOR NO KEY UPDATE" : "FOR SHARE"
    let rows = try execute(
      """
      SELECT digest, leaving, owner, bytes FROM images WHERE digest = ANY ($1) ORDER BY digest \(lock)
      """, [.byteStrings(Array(digests))])
    var found: [[UInt8]: Bool] = [:]
    var moved: [[UInt8]: [UInt8]] = [:]
    for row in rows.all {
      guard let digest = rows.bytes(row, 0) else { continue }
      let isLeaving = rows.bool(row, 1)
      found[digest] = isLeaving
      let owner = rows.bytes(row, 2)
      guard let new = Image.owner(owner, and: owners[digest]), new != owner else { continue }
      moved[digest] = new
      guard !isLeaving, let bytes = rows.int(row, 3).map(Int.init) else { continue }
      countImageBytesOfOwner(-bytes, owner)
      countImageBytesOfOwner(bytes, new)
    }
    try setOwners(moved)
    return found
  }

  /// Returns whether an image's owner would change.
  private func changesOwner(_ owners: [[UInt8]: [UInt8]]) throws -> Bool {
    guard !owners.isEmpty else { return false }
    let digests = Array(owners.keys)
    return try !execute(
      """
      SELECT 1 FROM images i JOIN unnest($1, $2) AS n (digest, owner) ON n.digest = i.digest
      WHERE i.owner IS DISTINCT FROM n.owner AND i.owner IS DISTINCT FROM $3 LIMIT 1
      """,
      [.byteStrings(digests), .byteStrings(digests.map { owners[$0] }), .bytes(Image.ofSeveral)]
    ).isEmpty
  }

  /// Changes the owners of images, whose rows this transaction has locked.
  private func setOwners(_ owners: [[UInt8]: [UInt8]]) throws {
    guard !owners.isEmpty else { return }
    let digests = owners.keys.sorted { $0.lexicographicallyPrecedes($1) }
    let values: [SQLValue] = [.byteStrings(digests), .byteStrings(digests.map { owners[$0] })]
    try add(
      """
      UPDATE images SET owner = n.owner FROM unnest($1, $2) AS n (digest, owner)
      WHERE images.digest = n.digest
      """, values)
    try add(
      """
      UPDATE cache SET owner = nullif(n.owner, $3) FROM unnest($1, $2) AS n (digest, owner)
      WHERE cache.digest = n.digest
      """, values + [.bytes(Image.ofSeveral)])
  }

  /// Creates the rows of images that references are added to, if they do not exist.
  /// - Parameters:
  ///   - begun: the images' sizes in bytes.
  ///   - known: the result of ``lockForReferences(_:)``.
  ///   - offered: the bytes of small images; they are stored if the image is not.
  ///   - owners: the owners of the jobs that refer to new images.
  /// - Throws: an error if an image is pending deletion and its bytes are not offered.
  func addImages(
    _ begun: [[UInt8]: Int], known: [[UInt8]: Bool], offered: [[UInt8]: [UInt8]] = [:],
    owners: [[UInt8]: [UInt8]] = [:]
  ) throws {
    let new = begun.keys.filter { known[$0] == nil }.sorted { $0.lexicographicallyPrecedes($1) }
    let back = begun.keys.filter { known[$0] == true }
    guard back.allSatisfy({ offered[$0] != nil }) else {
      throw StoreError.unavailable(detail: "an image that is pending deletion was not reserved")
    }
    if !new.isEmpty {
      // If the bytes are not offered, the image is a file whose reservation was lost in a crash of
      // the server.
      try add(
        """
        INSERT INTO images (digest, bytes, embedded, generation, owner)
        SELECT * FROM unnest($1, $2, $3, $4, $5)
        """,
        [
          .byteStrings(new), .ints(new.map { Int64(begun[$0] ?? 0) }),
          .bools(new.map { offered[$0] != nil }), .ints(new.map { _ in Image.newGeneration }),
          .byteStrings(new.map { owners[$0] }),
        ])
    }
    for digest in back {
      // Its file is being deleted right now. The row stays and now refers to bytes in the database.
      try execute(
        """
        UPDATE images SET leaving = false, leaving_for = NULL, embedded = true, bytes = $2, generation = $3,
          owner = $4
        WHERE digest = $1
        """,
        [
          .bytes(digest), .int(Int64(begun[digest] ?? 0)), .int(Image.newGeneration),
          .bytes(owners[digest]),
        ])
    }
    let taken = (new + back).filter { offered[$0] != nil }
    if !taken.isEmpty {
      try add(
        "INSERT INTO contents (digest, bytes) SELECT * FROM unnest($1, $2)",
        [.byteStrings(taken), .byteStrings(taken.map { offered[$0] })])
    }
    tallies[.images] += new.count + back.count
    for digest in new + back { countImageBytes(begun[digest] ?? 0, of: owners[digest]) }
  }

  /// Records images that may have lost their last reference. An existing row is locked too, so that
  /// a transaction that checks it later sees these changes.
  func addDeletionCandidates(_ digests: Set<[UInt8]>) throws {
    guard !digests.isEmpty else { return }
    try add(
      """
      INSERT INTO candidates (digest) SELECT n.digest FROM unnest($1) AS n (digest) WHERE true
      ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest
      """, [.byteStrings(digests.sorted { $0.lexicographicallyPrecedes($1) })])
  }

  /// Deletes the holders' reservations.
  /// - Returns: the reserved images.
  func deleteReservations(of holders: [JobID]) throws -> Set<[UInt8]> {
    guard !holders.isEmpty else { return [] }
    let rows = try execute(
      "DELETE FROM reservations WHERE holder = ANY ($1) RETURNING digest", [.ids(holders)])
    return Set(rows.all.compactMap { rows.bytes($0, 0) })
  }

  /// The bytes of images that can't be evicted.
  func pinnedBytes(with digest: [UInt8]) throws -> Int {
    Int(try execute(Self.pinnedBytes, [.bytes(digest)]).int(0, 0) ?? 0)
  }

  static let pinnedBytes = """
    SELECT coalesce(sum(bytes), 0)::bigint FROM images WHERE NOT leaving AND digest IN (
      SELECT digest FROM reservations UNION SELECT source FROM jobs
        WHERE source IS NOT NULL AND phase = 0 UNION SELECT $1)
    """

  /// Takes over images that stopped instances were deleting. They can't be reused before their
  /// bytes are deleted, because it is unknown whether the deletion was requested already.
  func takeOverDeletions(_ count: Int, for instance: Instance) throws -> [ImageName] {
    let rows = try execute(
      """
      UPDATE images SET leaving_for = $1 WHERE digest IN (SELECT digest FROM images i
        WHERE leaving AND NOT EXISTS (
          SELECT 1 FROM instances n WHERE n.number = i.leaving_for AND NOT n.ended)
        ORDER BY digest LIMIT $2 FOR UPDATE SKIP LOCKED)
      RETURNING digest, generation
      """, [.int(instance.number), .int(Int64(count))])
    return rows.names
  }

  /// Marks up to `count` unreferenced images as pending deletion. Images in the database are
  /// deleted at once, as many as time allows.
  /// - Returns: the images whose files are to be removed.
  func markUnreferenced(_ count: Int, for instance: Instance) throws -> [ImageName] {
    var left: [ImageName] = []
    guard count > 0 else { return left }
    repeat {
      let candidates = try execute(
        "SELECT digest FROM candidates ORDER BY digest LIMIT $1 FOR UPDATE SKIP LOCKED",
        [.int(Int64(max(64, count)))])
      guard !candidates.isEmpty else { break }
      let digests = candidates.all.compactMap { candidates.bytes($0, 0) }
      let images = try lockedImages(digests)
      let unused = try unreferenced(images.filter { !$0.isPendingDeletion }.map(\.digest))
      var (done, going, files) = (Set(digests).subtracting(unused), [Image](), left.count)
      for image in images where unused.contains(image.digest) && files < count {
        done.insert(image.digest)
        going.append(image)
        if !image.isEmbedded { files += 1 }
      }
      left += try remove(going, for: instance)
      try execute("DELETE FROM candidates WHERE digest = ANY ($1)", [.byteStrings(Array(done))])
    } while left.count < count && hasTime
    return left
  }

  /// An image's row, locked by this transaction.
  struct Image {
    let digest: [UInt8]
    let bytes: Int
    let isPendingDeletion: Bool
    let isEmbedded: Bool
    let generation: Int64
    /// The owner of the jobs that refer to the image: `nil` before the first job, empty after jobs
    /// of several owners did. It never changes back, because the remaining references are not
    /// counted by owner.
    let owner: [UInt8]?

    /// ``owner`` of an image with jobs of several owners.
    static let ofSeveral: [UInt8] = []

    /// Combines the owners of two groups of jobs that refer to an image.
    static func owner(_ a: [UInt8]?, and b: [UInt8]?) -> [UInt8]? {
      guard let a, let b else { return a ?? b }
      return a == b ? a : ofSeveral
    }

    /// The name of the stored bytes.
    var name: ImageName? {
      ImageDigest(bytes: digest).map { ImageName($0, generation: generation) }
    }

    /// A generation for a new or reused row. It is random, because after a crash of the server a
    /// sequence may repeat its last values.
    static var newGeneration: Int64 { .random(in: 1 ... .max) }
  }

  func lockedImages(_ digests: [[UInt8]]) throws -> [Image] {
    let rows = try execute(
      """
      SELECT digest, bytes, leaving, embedded, generation, owner FROM images
      WHERE digest = ANY ($1) ORDER BY digest FOR UPDATE
      """, [.byteStrings(digests)])
    return rows.all.map {
      Image(
        digest: rows.bytes($0, 0) ?? [], bytes: Int(rows.int($0, 1) ?? 0),
        isPendingDeletion: rows.bool($0, 2), isEmbedded: rows.bool($0, 3),
        generation: rows.int($0, 4) ?? 0, owner: rows.bytes($0, 5))
    }
  }

  /// Returns the images without references. A separate statement, so that it sees everything
  /// committed before the rows were locked.
  func unreferenced(_ digests: [[UInt8]]) throws -> Set<[UInt8]> {
    guard !digests.isEmpty else { return [] }
    let rows = try execute(
      "SELECT n.digest FROM unnest($1) AS n (digest) WHERE NOT (\(Self.isReferredTo("n.digest")))",
      [.byteStrings(digests)])
    return Set(rows.all.compactMap { rows.bytes($0, 0) })
  }

  /// Returns whether the image is in use and can't be evicted.
  func isNeeded(_ digest: [UInt8]) throws -> Bool {
    try !execute("SELECT 1 WHERE \(Self.isNeeded("$1"))", [.bytes(digest)]).isEmpty
  }

  /// Condition: a reservation or an unfinished job needs the image.
  private static func isNeeded(_ digest: String) -> String {
    """
    EXISTS (SELECT 1 FROM reservations r WHERE r.digest = \(digest))
      OR EXISTS (SELECT 1 FROM jobs j WHERE j.source = \(digest) AND j.phase = 0)
    """
  }

  /// Condition: anything refers to the image.
  static func isReferredTo(_ digest: String) -> String {
    """
    \(isNeeded(digest))
      OR EXISTS (SELECT 1 FROM jobs j WHERE j.image = \(digest))
      OR EXISTS (SELECT 1 FROM jobs j WHERE j.source = \(digest))
      OR EXISTS (SELECT 1 FROM cache c WHERE c.digest = \(digest))
    """
  }

  /// - Returns: the images pending deletion, whose files are to be removed.
  func remove(_ images: [Image], for instance: Instance) throws -> [ImageName] {
    tallies[.images] -= images.count
    for image in images { countImageBytes(-image.bytes, of: image.owner) }
    let embedded = images.filter(\.isEmbedded).map(\.digest)
    if !embedded.isEmpty {
      try add("DELETE FROM contents WHERE digest = ANY ($1)", [.byteStrings(embedded)])
      try add("DELETE FROM images WHERE digest = ANY ($1)", [.byteStrings(embedded)])
    }
    let files = images.filter { !$0.isEmbedded }
    if !files.isEmpty {
      try add(
        "UPDATE images SET leaving = true, leaving_for = $2, cached = 0 WHERE digest = ANY ($1)",
        [.byteStrings(files.map(\.digest)), .int(instance.number)])
    }
    return files.compactMap(\.name)
  }
}
