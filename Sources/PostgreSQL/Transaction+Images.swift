internal import Jobs

/// References to images, and the room that they take.
///
/// Nothing counts references: who begins one locks the image's row to share it, who lets an image go locks it for
/// itself and then looks whether there is any.
extension Transaction {
  /// Locks the rows of images that references begin to, in one order as all do.
  /// - Parameter toCount: whether something is to be counted in the rows.
  /// - Returns: for each that there is whether it is leaving.
  func sharedImages(
    _ digests: some Collection<[UInt8]>, toCount: Bool = false
  ) throws -> [[UInt8]: Bool] {
    guard !digests.isEmpty else { return [:] }
    let lock = toCount ? "FOR NO KEY UPDATE" : "FOR SHARE"
    let rows = try execute(
      "SELECT digest, leaving FROM images WHERE digest = ANY ($1) ORDER BY digest \(lock)",
      [.byteStrings(Array(digests))])
    var found: [[UInt8]: Bool] = [:]
    for row in rows.all { if let digest = rows.bytes(row, 0) { found[digest] = rows.bool(row, 1) } }
    return found
  }

  /// Has images be there that references begin to.
  /// - Parameters:
  ///   - begun: with their sizes.
  ///   - known: what ``sharedImages(_:)`` told of them.
  ///   - offered: bytes, of which those are taken in that are not kept.
  /// - Throws: where one is leaving and not offered.
  func begin(
    _ begun: [[UInt8]: Int], known: [[UInt8]: Bool], offered: [[UInt8]: [UInt8]] = [:]
  ) throws {
    let new = begun.keys.filter { known[$0] == nil }.sorted { $0.lexicographicallyPrecedes($1) }
    let back = begun.keys.filter { known[$0] == true }
    guard back.allSatisfy({ offered[$0] != nil }) else {
      throw StoreError.unavailable(detail: "an image that is leaving was not reserved")
    }
    if !new.isEmpty {
      // One that is not offered is a file whose reservation a crash of the server undid.
      try add(
        "INSERT INTO images (digest, bytes, embedded, generation) SELECT * FROM unnest($1, $2, $3, $4)",
        [
          .byteStrings(new), .ints(new.map { Int64(begun[$0] ?? 0) }),
          .bools(new.map { offered[$0] != nil }), .ints(new.map { _ in Image.newGeneration }),
        ])
    }
    for digest in back {
      // Its file is being removed at this moment; the row stays, as it is referred to again.
      try execute(
        """
        UPDATE images SET leaving = false, leaving_for = NULL, embedded = true, bytes = $2, generation = $3
        WHERE digest = $1
        """,
        [.bytes(digest), .int(Int64(begun[digest] ?? 0)), .int(Image.newGeneration)])
    }
    let taken = (new + back).filter { offered[$0] != nil }
    if !taken.isEmpty {
      try add(
        "INSERT INTO contents (digest, bytes) SELECT * FROM unnest($1, $2)",
        [.byteStrings(taken), .byteStrings(taken.map { offered[$0] })])
    }
    tallies[.images] += new.count + back.count
    tallies[.imageBytes] += (new + back).reduce(0) { $0 + (begun[$1] ?? 0) }
  }

  /// Notes images that nothing may refer to any more. A row that is there is locked all the same: who looks at it then
  /// sees what this transaction did.
  func noteCandidates(_ digests: Set<[UInt8]>) throws {
    guard !digests.isEmpty else { return }
    try add(
      """
      INSERT INTO candidates (digest) SELECT unnest($1)
      ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest
      """, [.byteStrings(digests.sorted { $0.lexicographicallyPrecedes($1) })])
  }

  /// Ends holders' reservations.
  /// - Returns: the images that they were of.
  func endReservations(of holders: [JobID]) throws -> Set<[UInt8]> {
    guard !holders.isEmpty else { return [] }
    let rows = try execute(
      "DELETE FROM reservations WHERE holder = ANY ($1) RETURNING digest", [.ids(holders)])
    return Set(rows.all.compactMap { rows.bytes($0, 0) })
  }

  /// The bytes of images that can't give way.
  func pinnedBytes(with digest: [UInt8]) throws -> Int {
    Int(try execute(Self.pinnedBytes, [.bytes(digest)]).int(0, 0) ?? 0)
  }

  static let pinnedBytes = """
    SELECT coalesce(sum(bytes), 0)::bigint FROM images WHERE NOT leaving AND digest IN (
      SELECT digest FROM reservations UNION SELECT source FROM jobs
        WHERE source IS NOT NULL AND phase = 0 UNION SELECT $1)
    """

  /// Takes over marks of instances that are gone. Their images don't come back before the bytes are removed: nobody
  /// knows whether the lost one has asked for that.
  func adopt(_ count: Int, for instance: Instance) throws -> [ImageName] {
    let rows = try execute(
      """
      UPDATE images SET leaving_for = $1 WHERE digest IN (SELECT digest FROM images i
        WHERE leaving AND NOT EXISTS (
          SELECT FROM instances n WHERE n.number = i.leaving_for AND NOT n.ended)
        ORDER BY digest LIMIT $2 FOR UPDATE SKIP LOCKED)
      RETURNING digest, generation
      """, [.int(instance.number), .int(Int64(count))])
    return rows.names
  }

  /// Marks up to `count` images that nothing refers to as leaving; those that are embedded go at once, as many as it has the
  /// time for.
  /// - Returns: those whose files are to be removed.
  func leave(abandoned count: Int, for instance: Instance) throws -> [ImageName] {
    var left: [ImageName] = []
    guard count > 0 else { return left }
    repeat {
      let candidates = try execute(
        "SELECT digest FROM candidates ORDER BY digest LIMIT $1 FOR UPDATE SKIP LOCKED",
        [.int(Int64(max(64, count)))])
      guard !candidates.isEmpty else { break }
      let digests = candidates.all.compactMap { candidates.bytes($0, 0) }
      let images = try lockedImages(digests)
      let unused = try unreferred(images.filter { !$0.isLeaving }.map(\.digest))
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

  /// An image's row, which the transaction has locked.
  struct Image {
    let digest: [UInt8]
    let bytes: Int
    let isLeaving: Bool
    let isEmbedded: Bool
    let generation: Int64

    /// What its bytes are kept under.
    var name: ImageName? {
      ImageDigest(bytes: digest).map { ImageName($0, generation: generation) }
    }

    /// Of an image whose row is made, or made use of again. Chosen by chance: a crash of the server may lose a sequence's
    /// last values, and give them again.
    static var newGeneration: Int64 { .random(in: 1 ... .max) }
  }

  func lockedImages(_ digests: [[UInt8]]) throws -> [Image] {
    let rows = try execute(
      """
      SELECT digest, bytes, leaving, embedded, generation FROM images
      WHERE digest = ANY ($1) ORDER BY digest FOR UPDATE
      """, [.byteStrings(digests)])
    return rows.all.map {
      Image(
        digest: rows.bytes($0, 0) ?? [], bytes: Int(rows.int($0, 1) ?? 0),
        isLeaving: rows.bool($0, 2), isEmbedded: rows.bool($0, 3),
        generation: rows.int($0, 4) ?? 0)
    }
  }

  /// Those that nothing refers to. A statement of its own: it sees what was committed before the rows were locked.
  func unreferred(_ digests: [[UInt8]]) throws -> Set<[UInt8]> {
    guard !digests.isEmpty else { return [] }
    let rows = try execute(
      "SELECT d FROM unnest($1) AS d WHERE NOT is_referred_to(d)", [.byteStrings(digests)])
    return Set(rows.all.compactMap { rows.bytes($0, 0) })
  }

  /// Whether it can't give way.
  func isNeeded(_ digest: [UInt8]) throws -> Bool {
    try execute("SELECT is_needed($1)", [.bytes(digest)]).bool(0, 0)
  }

  /// - Returns: those that leave, as there are files to be removed.
  func remove(_ images: [Image], for instance: Instance) throws -> [ImageName] {
    tallies[.images] -= images.count
    tallies[.imageBytes] -= images.reduce(0) { $0 + $1.bytes }
    let embedded = images.filter(\.isEmbedded).map(\.digest)
    if !embedded.isEmpty {
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
