package import Jobs

/// The name of this store, which marks the bucket that holds its images.
extension SQLJobStore: ImageOwner {
  /// The name was created with the tables.
  package func name() async throws(StoreError) -> String {
    try await read {
      let rows = try $0.execute("SELECT value FROM settings WHERE name = 'name'")
      guard let name = rows.bytes(0, 0) else {
        throw StoreError.unavailable(detail: "the database has no name")
      }
      return String(decoding: name, as: UTF8.self)
    }
  }
}

/// References to images.
extension SQLJobStore {
  /// Releases a holder's reservations.
  package func release(_ holder: JobID) async throws(StoreError) {
    try await write(isSynced: false) { transaction in
      try transaction.addDeletionCandidates(transaction.deleteReservations(of: [holder]))
    }
  }

  /// Removes all references to the image, in several transactions if necessary. Meanwhile, other
  /// jobs may still read it.
  package func markLost(
    _ image: ImageDigest, for instance: Instance
  ) async throws(StoreError) -> LostImage? {
    var jobs: [JobID] = []
    while true {
      let step: ReferenceRemoval?
      do throws(StoreError) {
        step = try await write { try $0.markLost(to: image, for: instance) }
      } catch {
        guard !jobs.isEmpty else { throw error }
        return LostImage(nil, jobs: jobs)
      }
      guard let step else { return jobs.isEmpty ? nil : LostImage(nil, jobs: jobs) }
      jobs += step.jobs
      if let name = step.name { return LostImage(name, jobs: jobs) }
    }
  }

  /// Checks only images that lost a reference, and images that stopped instances were deleting.
  package func unreferencedImages(
    _ count: Int, for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    try await write { transaction in
      let adopted = try transaction.takeOverDeletions(count, for: instance)
      guard adopted.count < count else { return adopted }
      return try adopted + transaction.markUnreferenced(count - adopted.count, for: instance)
    }
  }

  /// Returns images that this instance has marked for deletion, in any order.
  package func imagesPendingDeletion(
    _ count: Int, of instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    try await read { transaction in
      let rows = try transaction.execute(
        "SELECT digest, generation FROM images WHERE leaving AND leaving_for = $1 LIMIT $2",
        [.int(instance.number), .int(Int64(count))])
      return rows.names
    }
  }

  /// Deletes the rows of images whose bytes are gone. An image that is referenced or was stored
  /// again stays.
  package func confirmDeletion(_ images: [ImageName]) async throws(StoreError) {
    guard !images.isEmpty else { return }
    let gone = Set(images)
    try await write(isSynced: false) { transaction in
      let known = try transaction.lockedImages(images.map(\.digest.bytes)).filter {
        $0.name.map(gone.contains) ?? false
      }
      let unused = try transaction.unreferenced(known.map(\.digest))
      for image in known where unused.contains(image.digest) && !image.isPendingDeletion {
        transaction.tallies[.images] -= 1
        transaction.countImageBytes(-image.bytes, of: image.owner)
      }
      let values = [SQLValue.byteStrings(Array(unused))]
      try transaction.add("DELETE FROM contents WHERE digest = ANY ($1)", values)
      try transaction.execute("DELETE FROM images WHERE digest = ANY ($1)", values)
    }
  }

  /// Checks with a read transaction first, because orphaned files are rare. A name with a
  /// generation needs no mark: no image gets this generation again.
  package func markOrphans(
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
        SELECT n.digest, 0, true, $2 FROM unnest($1) AS n (digest) WHERE true ORDER BY n.digest
        ON CONFLICT (digest) DO NOTHING RETURNING digest
        """, [.byteStrings(unknown.map(\.digest.bytes)), .int(instance.number)])
      let marked = Set(rows.all.compactMap { rows.digest($0, 0) })
      return stale + unknown.filter { marked.contains($0.digest) }
    }
  }

  package func keptImage(_ digest: ImageDigest) async throws(StoreError) -> KeptImage? {
    try await read { transaction in
      let rows = try transaction.execute(
        "SELECT generation, bytes FROM images WHERE digest = $1", [.bytes(digest.bytes)])
      guard let generation = rows.int(0, 0), let bytes = rows.int(0, 1) else { return nil }
      return KeptImage(ImageName(digest, generation: generation), bytes: Int(bytes))
    }
  }
}

/// The result of one transaction that removes references to an image.
private struct ReferenceRemoval: Sendable {
  /// The jobs that lost the image.
  var jobs: [JobID]
  /// `nil` if further references are left.
  var name: ImageName?
}

extension Transaction {
  /// Removes a portion of the references to an image.
  /// - Returns: `nil` if the image is not stored or is in use.
  fileprivate func markLost(to image: ImageDigest, for instance: Instance) throws
    -> ReferenceRemoval?
  {
    guard let known = try lockedImages([image.bytes]).first, !known.isPendingDeletion,
      try !isNeeded(image.bytes)
    else { return nil }
    guard try references(to: image.bytes) <= Self.maxRemovedReferences else {
      return ReferenceRemoval(
        jobs: try removeReferences(to: image.bytes, atMost: Self.maxRemovedReferences))
    }
    let jobs = try execute("SELECT id FROM jobs WHERE image = $1", [.bytes(image.bytes)])
    _ = try evict(known, for: instance)
    return ReferenceRemoval(
      jobs: jobs.all.compactMap { jobs.id($0, 0) },
      name: ImageName(image, generation: known.generation))
  }
}
