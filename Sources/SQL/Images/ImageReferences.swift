package import Jobs

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
      try toCount || hasOneWriter || changesOwner(owners) ? "FOR NO KEY UPDATE" : "FOR SHARE"
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
  ///   - entries: cache entries that will be inserted.
  /// - Returns: the images with a new row, which counts these entries.
  /// - Throws: an error if an image is pending deletion and its bytes are not offered.
  @discardableResult
  func addImages(
    _ begun: [[UInt8]: Int], known: [[UInt8]: Bool], offered: [[UInt8]: [UInt8]] = [:],
    owners: [[UInt8]: [UInt8]] = [:], entries: [CacheRow] = []
  ) throws -> Set<[UInt8]> {
    let new = begun.keys.filter { known[$0] == nil }.sorted { $0.lexicographicallyPrecedes($1) }
    let back = begun.keys.filter { known[$0] == true }
    guard back.allSatisfy({ offered[$0] != nil }) else {
      throw StoreError.unavailable(detail: "an image that is pending deletion was not reserved")
    }
    if !new.isEmpty {
      let counts = Dictionary(entries.map { ($0.digest, 1 as Int64) }, uniquingKeysWith: +)
      // If the bytes are not offered, the image is a file whose reservation was lost in a crash of
      // the server.
      try add(
        """
        INSERT INTO images (digest, bytes, content, generation, owner, cached)
        SELECT n.digest, n.bytes, CASE WHEN n.is_offered THEN nextval('content_numbers') END, n.generation, n.owner, n.cached
        FROM unnest($1, $2, $3, $4, $5, $6) AS n (digest, bytes, is_offered, generation, owner, cached)
        """,
        [
          .byteStrings(new), .ints(new.map { Int64(begun[$0] ?? 0) }),
          .bools(new.map { offered[$0] != nil }), .ints(new.map { _ in Image.newGeneration }),
          .byteStrings(new.map { owners[$0] }), .ints(new.map { counts[$0] ?? 0 }),
        ])
      for digest in new where counts[digest] != nil { tallies[.entryBytes] += begun[digest] ?? 0 }
    }
    for digest in back {
      // Its file is being deleted right now. The row stays and now refers to bytes in the database.
      try execute(
        """
        UPDATE images SET leaving = false, leaving_for = NULL, content = nextval('content_numbers'), bytes = $2,
          generation = $3, owner = $4
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
        """
        INSERT INTO contents (number, bytes) SELECT i.content, n.bytes FROM unnest($1, $2) AS n (digest, bytes)
        JOIN images i ON i.digest = n.digest
        """,
        [.byteStrings(taken), .byteStrings(taken.map { offered[$0] })])
    }
    tallies[.images] += new.count + back.count
    for digest in new + back { countImageBytes(begun[digest] ?? 0, of: owners[digest]) }
    return Set(new)
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
        LIMIT $2 FOR UPDATE SKIP LOCKED)
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
        if image.content == nil { files += 1 }
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
    /// The row of `contents` with the bytes; nil if they are a file.
    let content: Int64?
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
      SELECT digest, bytes, leaving, content, generation, owner FROM images
      WHERE digest = ANY ($1) ORDER BY digest FOR UPDATE
      """, [.byteStrings(digests)])
    return rows.all.map {
      Image(
        digest: rows.bytes($0, 0) ?? [], bytes: Int(rows.int($0, 1) ?? 0),
        isPendingDeletion: rows.bool($0, 2), content: rows.int($0, 3),
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
    let embedded = images.filter { $0.content != nil }
    if !embedded.isEmpty {
      try removeContents(of: embedded)
      try add("DELETE FROM images WHERE digest = ANY ($1)", [.byteStrings(embedded.map(\.digest))])
    }
    let files = images.filter { $0.content == nil }
    if !files.isEmpty {
      try add(
        "UPDATE images SET leaving = true, leaving_for = $2, cached = 0 WHERE digest = ANY ($1)",
        [.byteStrings(files.map(\.digest)), .int(instance.number)])
    }
    return files.compactMap(\.name)
  }

  /// Deletes the bytes of images that are in the database.
  fileprivate func removeContents(of images: [Image]) throws {
    let numbers = images.compactMap(\.content)
    guard !numbers.isEmpty else { return }
    try add("DELETE FROM contents WHERE number = ANY ($1)", [.ints(numbers)])
  }
}

/// A request to reserve an image before it is stored.
struct ReserveRequest: Sendable {
  var image: ImageDigest
  var bytes: Int
  var holder: JobID
  var instance: Instance
  /// The limit for the bytes of all images.
  var limit: Int
  /// Whether other instances read the image by the name assigned here. Then the reservation must
  /// survive a crash of the server.
  var isNamed: Bool
}

extension SQLJobStore {
  /// Runs in one transaction together with other reservations. Images are evicted only if the limit
  /// is reached.
  package func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) async throws(StoreError) -> Reservation {
    let request = ReserveRequest(
      image: image, bytes: bytes, holder: holder, instance: instance, limit: limit,
      isNamed: isShared)
    guard let reservation = try await writing.perform(.reserve(request)).reservation else {
      throw .unavailable(detail: "the request did not run")
    }
    return reservation
  }
}

extension Transaction {
  /// Reserves images with a fixed number of statements, as long as nothing has to be evicted.
  func reserve(_ requests: [ReserveRequest], _ totals: Totals) throws -> StoreOutcomes {
    let live = try Set(requests.map(\.instance)).filter(hasLease)
    let images = Set(requests.filter { live.contains($0.instance) }.map(\.image))
    let known = try lockedImages(images.map(\.bytes))
    let batch = ReservedImages(requests.filter { live.contains($0.instance) }, known)
    let fits = batch.fits(totals[.imageBytes])
    if fits {
      try insert(batch.new)
      try insert(batch.reserved)
    }
    return try requests.map { request in
      guard live.contains(request.instance) else { return .failure(.leaseLost) }
      var answer = StoreAnswer()
      if batch.leaving.contains(request.image) {
        answer.reservation = .pendingDeletion
      } else if fits, let name = batch.names[request.image] {
        answer.reservation = .reserved(name, evicted: [])
      } else {
        answer.reservation = try reserveWithEviction(request, totals)
      }
      return .success(answer)
    }
  }

  private func hasLease(_ instance: Instance) throws -> Bool {
    do {
      _ = try checkLease(of: instance)
      return true
    } catch StoreError.leaseLost { return false }
  }

  private func insert(_ images: [(name: ImageName, bytes: Int)]) throws {
    guard !images.isEmpty else { return }
    try add(
      "INSERT INTO images (digest, bytes, generation) SELECT * FROM unnest($1, $2, $3)",
      [
        .byteStrings(images.map(\.name.digest.bytes)), .ints(images.map { Int64($0.bytes) }),
        .ints(images.map(\.name.generation)),
      ])
    tallies[.images] += images.count
    tallies[.imageBytes] += images.reduce(0) { $0 + $1.bytes }
  }

  private func insert(_ requests: [ReserveRequest]) throws {
    guard !requests.isEmpty else { return }
    try add(
      """
      INSERT INTO reservations (holder, digest, instance) SELECT * FROM unnest($1, $2, $3) WHERE true
      ON CONFLICT DO NOTHING
      """,
      [
        .ids(requests.map(\.holder)), .byteStrings(requests.map(\.image.bytes)),
        .ints(requests.map(\.instance.number)),
      ])
  }

  /// Reserves an image that may require an eviction.
  private func reserveWithEviction(_ request: ReserveRequest, _ totals: Totals) throws
    -> Reservation
  {
    let digest = request.image.bytes
    let known = try lockedImages([digest]).first
    if known?.isPendingDeletion == true { return .pendingDeletion }
    let added = known == nil ? request.bytes : 0
    if totals[.imageBytes] + added > request.limit {
      guard try pinnedBytes(with: digest) + added <= request.limit else { return .full }
    }
    // Reserve an existing image first, so that it is not evicted for itself.
    if known != nil { try insert([request]) }
    // An image that needs the space of thousands of others gets it in several calls.
    let evicted = try evictImages(
      downTo: request.limit - added, atLeast: min(added, 1 << 20), totals, for: request.instance)
    if let known {
      return .reserved(
        ImageName(request.image, generation: known.generation), evicted: evicted)
    }
    guard totals[.imageBytes] + added <= request.limit else { return .incomplete(evicted: evicted) }
    let name = ImageName(request.image, generation: Image.newGeneration)
    try insert([(name: name, bytes: request.bytes)])
    try insert([request])
    return .reserved(name, evicted: evicted)
  }
}

/// The images of one transaction's reservations.
private struct ReservedImages {
  let reserved: [ReserveRequest]
  /// New images, sorted by digest: all transactions lock rows in this order.
  let new: [(name: ImageName, bytes: Int)]
  let names: [ImageDigest: ImageName]
  let leaving: Set<ImageDigest>

  init(_ requests: [ReserveRequest], _ known: [Transaction.Image]) {
    let known = known.compactMap { image in image.name.map { (name: $0, image.isPendingDeletion) } }
    let leaving = Set(known.filter(\.1).map(\.name.digest))
    var names = Dictionary(uniqueKeysWithValues: known.map { ($0.name.digest, $0.name) })
    var new: [(name: ImageName, bytes: Int)] = []
    for request in requests where names[request.image] == nil {
      let name = ImageName(request.image, generation: Transaction.Image.newGeneration)
      names[request.image] = name
      new.append((name: name, bytes: request.bytes))
    }
    self.new = new.sorted {
      $0.name.digest.bytes.lexicographicallyPrecedes($1.name.digest.bytes)
    }
    (self.names, self.leaving) = (names, leaving)
    reserved = requests.filter { !leaving.contains($0.image) }
  }

  /// Returns whether all new images fit within the smallest limit of the requests.
  func fits(_ total: Int) -> Bool {
    let limit = reserved.map(\.limit).min() ?? .max
    return total + new.reduce(0) { $0 + $1.bytes } <= limit
  }
}

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
      try transaction.removeContents(of: known.filter { unused.contains($0.digest) })
      try transaction.execute(
        "DELETE FROM images WHERE digest = ANY ($1)", [.byteStrings(Array(unused))])
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
