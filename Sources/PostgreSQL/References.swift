public import Jobs

/// Whose images a bucket holds: the database has a name.
extension PostgresJobStore: ImageOwner {
  /// Made with the tables.
  public func name() async throws(StoreError) -> String {
    try await read {
      let rows = try $0.execute("SELECT value FROM settings WHERE name = 'name'")
      guard let name = rows.bytes(0, 0) else {
        throw StoreError.unavailable(detail: "the database has no name")
      }
      return String(decoding: name, as: UTF8.self)
    }
  }

  /// In one look.
  public func knowsAny(of images: [ImageDigest]) async throws(StoreError) -> Bool {
    try await read {
      try !$0.execute(
        "SELECT FROM images WHERE digest = ANY ($1) LIMIT 1", [.byteStrings(images.map(\.bytes))]
      ).isEmpty
    }
  }
}

/// What refers to images.
extension PostgresJobStore {
  /// Looks at what gives way only where the limit is reached.
  public func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) async throws(StoreError) -> Reservation {
    // Without it the bytes are swept one day.
    try await write(isSynced: false) { transaction in
      _ = try transaction.checkLease(of: instance)
      return try transaction.reserve(
        image.bytes, bytes: bytes, as: holder, of: instance, limit: limit)
    }
  }

  /// Ends a holder's reservations.
  public func release(_ holder: JobID) async throws(StoreError) {
    try await write(isSynced: false) { transaction in
      try transaction.noteCandidates(transaction.endReservations(of: [holder]))
    }
  }

  /// Lets the image go in one transaction, however many jobs had it.
  public func lose(
    _ image: ImageDigest, for instance: Instance
  ) async throws(StoreError) -> [JobID]? {
    try await write { transaction in
      guard let known = try transaction.lockedImages([image.bytes]).first, !known.isLeaving,
        try !transaction.execute("SELECT is_needed($1)", [.bytes(image.bytes)]).bool(0, 0)
      else { return nil }
      let jobs = try transaction.execute(
        "SELECT id FROM jobs WHERE image = $1", [.bytes(image.bytes)])
      _ = try transaction.evict(known, for: instance)
      return jobs.all.compactMap { jobs.id($0, 0) }
    }
  }

  /// Looks at those only that lost a reference.
  public func abandonedImages(
    _ count: Int, for instance: Instance
  ) async throws(StoreError) -> [ImageDigest] {
    try await write(isSynced: false) {
      try $0.leave(abandoned: count, for: instance).compactMap { ImageDigest(bytes: $0) }
    }
  }

  /// Forgets images whose bytes are gone; one that is referred to stays.
  public func forget(_ images: [ImageDigest]) async throws(StoreError) {
    guard !images.isEmpty else { return }
    try await write(isSynced: false) { transaction in
      let known = try transaction.lockedImages(images.map(\.bytes))
      let unused = try transaction.unreferred(known.map(\.digest))
      for image in known where unused.contains(image.digest) && !image.isLeaving {
        transaction.tallies[.images] -= 1
        transaction.tallies[.imageBytes] -= image.bytes
      }
      try transaction.execute(
        "DELETE FROM images WHERE digest = ANY ($1)", [.byteStrings(Array(unused))])
    }
  }

  /// Looks first where others may look: few of them are orphans, and none as a rule.
  public func markOrphans(
    _ images: [ImageDigest], for instance: Instance
  ) async throws(StoreError) -> [ImageDigest] {
    let known = try await read { transaction in
      let rows = try transaction.execute(
        "SELECT digest FROM images WHERE digest = ANY ($1)", [.byteStrings(images.map(\.bytes))])
      return Set(rows.all.compactMap { rows.digest($0, 0) })
    }
    let unknown = images.filter { !known.contains($0) }
    guard !unknown.isEmpty else { return [] }
    return try await write { transaction in
      let rows = try transaction.execute(
        """
        INSERT INTO images (digest, bytes, leaving, leaving_for)
        SELECT d, 0, true, $2 FROM unnest($1) AS d ORDER BY d
        ON CONFLICT (digest) DO NOTHING RETURNING digest
        """, [.byteStrings(unknown.map(\.bytes)), .int(instance.number)])
      let marked = Set(rows.all.compactMap { rows.digest($0, 0) })
      return unknown.filter(marked.contains)
    }
  }
}

extension Transaction {
  fileprivate func reserve(
    _ digest: [UInt8], bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) throws -> Reservation {
    let known = try lockedImages([digest]).first
    if known?.isLeaving == true { return .pendingDeletion }
    let totals = try self.totals()
    let added = known == nil ? bytes : 0
    if totals[.imageBytes] + added > limit {
      guard try pinnedBytes(with: digest) + added <= limit else { return .full }
    }
    if known == nil {
      try execute(
        "INSERT INTO images (digest, bytes) VALUES ($1, $2)", [.bytes(digest), .int(Int64(bytes))])
      tallies[.images] += 1
      tallies[.imageBytes] += bytes
    }
    try execute(
      "INSERT INTO reservations (holder, digest, instance) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
      [.id(holder), .bytes(digest), .int(instance.number)])
    let gone = try makeRoom(within: limit, totals, for: instance)
    return .reserved(evicted: gone.compactMap { ImageDigest(bytes: $0) })
  }
}
