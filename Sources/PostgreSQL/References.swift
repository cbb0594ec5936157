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
}

/// What refers to images.
extension PostgresJobStore {
  /// Ends a holder's reservations.
  public func release(_ holder: JobID) async throws(StoreError) {
    try await write(isSynced: false) { transaction in
      try transaction.noteCandidates(transaction.endReservations(of: [holder]))
    }
  }

  /// Lets the image go by as many transactions as it takes: whoever comes to it in between has it for as long.
  public func lose(
    _ image: ImageDigest, for instance: Instance
  ) async throws(StoreError) -> LostImage? {
    var jobs: [JobID] = []
    while true {
      let step: Loss?
      do throws(StoreError) { step = try await write { try $0.lose(image, for: instance) } } catch {
        guard !jobs.isEmpty else { throw error }
        return LostImage(nil, jobs: jobs)
      }
      guard let step else { return jobs.isEmpty ? nil : LostImage(nil, jobs: jobs) }
      jobs += step.jobs
      if let name = step.name { return LostImage(name, jobs: jobs) }
    }
  }

  /// Looks at those only that lost a reference, and at what lost instances were about to remove.
  public func abandonedImages(
    _ count: Int, for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    try await write { transaction in
      let adopted = try transaction.adopt(count, for: instance)
      guard adopted.count < count else { return adopted }
      return try adopted + transaction.leave(abandoned: count - adopted.count, for: instance)
    }
  }

  /// Any that it has marked, in no order.
  public func leavingImages(
    _ count: Int, of instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    try await read { transaction in
      let rows = try transaction.execute(
        "SELECT digest, generation FROM images WHERE leaving AND leaving_for = $1 LIMIT $2",
        [.int(instance.number), .int(Int64(count))])
      return rows.names
    }
  }

  /// Forgets images whose bytes are gone; one that is referred to stays, and so does one that is kept anew.
  public func forget(_ images: [ImageName]) async throws(StoreError) {
    guard !images.isEmpty else { return }
    let gone = Set(images)
    try await write(isSynced: false) { transaction in
      let known = try transaction.lockedImages(images.map(\.digest.bytes)).filter {
        $0.name.map(gone.contains) ?? false
      }
      let unused = try transaction.unreferred(known.map(\.digest))
      for image in known where unused.contains(image.digest) && !image.isLeaving {
        transaction.tallies[.images] -= 1
        transaction.countImageBytes(-image.bytes, of: image.owner)
      }
      try transaction.execute(
        "DELETE FROM images WHERE digest = ANY ($1)", [.byteStrings(Array(unused))])
    }
  }

  /// Looks first where others may look: few of them are orphans, and none as a rule. One with a generation is marked
  /// nowhere: no image gets it again.
  public func markOrphans(
    _ images: [ImageName], for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    let known = try await read { transaction in
      let rows = try transaction.execute(
        "SELECT digest, generation FROM images WHERE digest = ANY ($1)",
        [.byteStrings(images.map(\.digest.bytes))])
      return rows.all.reduce(into: [ImageDigest: Int64]()) { known, row in
        if let digest = rows.digest(row, 0) { known[digest] = rows.int(row, 1) }
      }
    }
    let stale = images.filter { $0.generation != 0 && known[$0.digest] != $0.generation }
    let unknown = images.filter { $0.generation == 0 && known[$0.digest] == nil }
    guard !unknown.isEmpty else { return stale }
    return try await write { transaction in
      let rows = try transaction.execute(
        """
        INSERT INTO images (digest, bytes, leaving, leaving_for)
        SELECT d, 0, true, $2 FROM unnest($1) AS d ORDER BY d
        ON CONFLICT (digest) DO NOTHING RETURNING digest
        """, [.byteStrings(unknown.map(\.digest.bytes)), .int(instance.number)])
      let marked = Set(rows.all.compactMap { rows.digest($0, 0) })
      return stale + unknown.filter { marked.contains($0.digest) }
    }
  }

  /// Looks the image's row up.
  public func keptImage(_ digest: ImageDigest) async throws(StoreError) -> KeptImage? {
    try await read { transaction in
      let rows = try transaction.execute(
        "SELECT generation, bytes FROM images WHERE digest = $1", [.bytes(digest.bytes)])
      guard let generation = rows.int(0, 0), let bytes = rows.int(0, 1) else { return nil }
      return KeptImage(ImageName(digest, generation: generation), bytes: Int(bytes))
    }
  }
}

/// What a transaction came to that lets an image go.
private struct Loss: Sendable {
  /// Those that had it until then.
  var jobs: [JobID]
  /// Nil where others are left.
  var name: ImageName?
}

extension Transaction {
  /// Has a portion of those that refer to an image let go of it.
  /// - Returns: nil where it is not kept, or needed.
  fileprivate func lose(_ image: ImageDigest, for instance: Instance) throws -> Loss? {
    guard let known = try lockedImages([image.bytes]).first, !known.isLeaving,
      try !isNeeded(image.bytes)
    else { return nil }
    guard try references(to: image.bytes) <= Self.portion else {
      return Loss(jobs: try thinOut(image.bytes, by: Self.portion))
    }
    let jobs = try execute("SELECT id FROM jobs WHERE image = $1", [.bytes(image.bytes)])
    _ = try evict(known, for: instance)
    return Loss(
      jobs: jobs.all.compactMap { jobs.id($0, 0) },
      name: ImageName(image, generation: known.generation))
  }
}
