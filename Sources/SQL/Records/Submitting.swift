package import Jobs
internal import Synchronization

/// New jobs, which are all stored or none.
struct SubmitRequest: Sendable {
  var rows: [JobRow]
  var jobs: [Job]
  var key: IdempotencyKey?
  var capacity: QueueCapacity

  init(_ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity) throws {
    rows = try jobs.map { try JobRow($0) }
    (self.jobs, self.key, self.capacity) = (jobs, key, capacity)
  }

  /// The images that the jobs refer to, with their sizes in bytes.
  var images: [[UInt8]: Int] {
    var images: [[UInt8]: Int] = [:]
    for (row, job) in zip(rows, jobs) {
      if let image = row.image { images[image] = job.keptImage?.keptBytes }
      if let source = row.source { images[source] = job.capturedSource?.bytes }
    }
    return images
  }

  /// The creation time of the key.
  var since: Timestamp { jobs.first?.createdAt ?? Timestamp(milliseconds: 0) }

  /// The images of jobs that were answered from the cache.
  var answers: [[UInt8]] { rows.compactMap(\.image) }
}

/// The result of a submission, without the jobs of a repeated one.
enum SubmitAnswer: Sendable {
  case accepted, recordsFull, imageGone, keyReused
  case queueFull(wanting: Int)
  case known([JobID])
}

/// Owners that were refused recently; the free capacity is shared with them. Entries matter for one
/// minute only, so they are held in memory.
final class Refusals: Sendable {
  private let refused = Mutex(FairShare<[UInt8]>())

  /// Returns whether the owner may add this much to the queue; records a refusal if not.
  func hasCapacity(
    for places: Int, of owner: [UInt8], held: [[UInt8]: Int], within capacity: QueueCapacity,
    at moment: Timestamp
  ) -> Bool {
    var queue = queue(holding: held)
    return acquire(places, for: owner, of: &queue, within: capacity, at: moment)
  }

  /// Returns the shared capacity with what each owner holds now and with the recent refusals.
  func queue(holding held: [[UInt8]: Int]) -> FairShare<[UInt8]> {
    var queue = refused.withLock(\.self)
    for (owner, places) in held { queue.acquireUnchecked(places, for: owner) }
    return queue
  }

  /// Reserves capacity for the owner; records a refusal if there is not enough.
  func acquire(
    _ places: Int, for owner: [UInt8], of queue: inout FairShare<[UInt8]>,
    within capacity: QueueCapacity, at moment: Timestamp
  ) -> Bool {
    guard places <= capacity.ofOwner - queue.share(of: owner) else { return false }
    if queue.acquire(places, for: owner, within: capacity.slots, at: moment) { return true }
    // Copy only the refusal to the shared state.
    refused.withLock { $0.recordDemand(of: owner, at: moment) }
    return false
  }
}

extension SQLJobStore {
  /// Stores new jobs, in one transaction together with other submissions.
  package func submit(
    _ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity
  ) async throws(StoreError) -> SubmitOutcome {
    let request: SubmitRequest
    do { request = try SubmitRequest(jobs, key: key, capacity: capacity) } catch {
      throw StoreError(cause: error)
    }
    #if DEBUG
      if PlantedFault.earlyAnswer.isPlanted, key == nil {
        Task { try? await submitting.perform(.submit(request)) }
        return .accepted
      }
    #endif
    switch try await answer(to: request) {
    case .accepted: return .accepted
    case .queueFull(let places): return .queueFull(wanting: places)
    case .recordsFull: return .recordsFull
    case .imageGone: return .imageGone
    case .keyReused: return .keyReused
    case .known(let ids):
      return try await read { transaction in
        let rows = try transaction.jobs(ids)
        return .repeated(
          try ids.map { try rows[$0].map { .kept(try $0.get().job()) } ?? .gone($0) })
      }
    }
  }

  private func answer(to request: SubmitRequest) async throws(StoreError) -> SubmitAnswer {
    #if DEBUG
      do throws(StoreError) { return try await perform(request) } catch {
        if PlantedFault.lostRetry.isPlanted { return .accepted }
        throw error
      }
    #else
      return try await perform(request)
    #endif
  }

  private func perform(_ request: SubmitRequest) async throws(StoreError) -> SubmitAnswer {
    let call = "submit(_:key:capacity:)"
    guard let answer = try await submitting.perform(.submit(request), for: call).submission else {
      throw .unavailable(detail: "the request did not run")
    }
    return answer
  }

  package func addBytes(
    _ came: [Owner: Int], on day: Int
  ) async throws(StoreError) -> [Owner: Int] {
    // All instances use the same order, so that they do not deadlock.
    let owners = came.keys.map { Array($0.name.utf8) }.sorted { $0.lexicographicallyPrecedes($1) }
    let counts = owners.map { Int64(came[Owner(String(decoding: $0, as: UTF8.self))] ?? 0) }
    return try await write { transaction in
      try transaction.execute("DELETE FROM owner_bytes WHERE day < $1", [.int(Int64(day - 1))])
      let rows = try transaction.execute(
        """
        INSERT INTO owner_bytes (owner, day, bytes)
        SELECT n.owner, $3, n.bytes FROM unnest($1, $2) AS n (owner, bytes) WHERE true
        ON CONFLICT (owner, day) DO UPDATE SET bytes = owner_bytes.bytes + excluded.bytes
        RETURNING owner, bytes
        """, [.byteStrings(owners), .ints(counts), .int(Int64(day))])
      var sums: [Owner: Int] = [:]
      for row in 0..<rows.count {
        guard let owner = rows.bytes(row, 0), let bytes = rows.int(row, 1) else { continue }
        sums[Owner(String(decoding: owner, as: UTF8.self))] = Int(bytes)
      }
      return sums
    }
  }

  /// Deletes expired idempotency keys by the index of their age, and unused origins, in one
  /// transaction.
  package func deleteKeys(olderThan age: Duration, count: Int) async throws(StoreError) -> Int {
    try await write { transaction in
      try transaction.deleteIdleOrigins(256)
      return try transaction.execute(
        Transaction.forgetKeys,
        [transaction.moment, .int(age.inMilliseconds), .int(Int64(count))]
      ).changes
    }
  }
}

extension Transaction {
  typealias SubmitOutcomes = [Result<SubmitAnswer, StoreError>]

  /// Stores submissions in the given order, so that each sees the effect of those before it.
  func submit(
    _ requests: [SubmitRequest], isRepeated: Bool, _ refusals: Refusals,
    _ refusedRecords: Refusals
  ) throws -> SubmitOutcomes {
    var keys = try knownKeys(requests.compactMap(\.key))
    // The only writer can't have lost an answer.
    var ids = hasOneWriter ? [] : try knownJobs(requests.flatMap(\.jobs).map(\.id))
    let images = try lockForReferences(
      requests.reduce(into: Set()) { $0.formUnion($1.images.keys) }, owners: Self.owners(requests))
    let totals = try totals(of: Set(requests.compactMap(\.rows.first?.owner)))
    var (places, stored) = (totals.places, totals.stored)
    var accepted: [SubmitRequest] = []
    let outcomes: SubmitOutcomes = requests.map { request in
      if let key = request.key, let known = keys[KeyName(key)] {
        // The key belongs to this same submission: an earlier try was committed although its answer
        // was lost.
        if isRepeated, known.ids == request.jobs.map(\.id) { return .success(.accepted) }
        return .success(known.fingerprint == key.fingerprint.bytes ? .known(known.ids) : .keyReused)
      }
      if isRepeated, request.key == nil, !request.jobs.isEmpty,
        request.jobs.allSatisfy({ ids.contains($0.id) })
      {
        return .success(.accepted)
      }
      let held = (places, stored)
      if let refusal = Self.reserveSlots(for: request, &places, refusals) {
        return .success(refusal)
      }
      guard Self.reserveRecordBytes(request, &stored, refusedRecords) else {
        places = held.0
        return .success(.recordsFull)
      }
      guard request.answers.allSatisfy({ images[$0] == false }) else {
        (places, stored) = held
        return .success(.imageGone)
      }
      guard !request.jobs.contains(where: { !ids.insert($0.id).inserted }) else {
        return .failure(.unavailable(detail: "the job already exists"))
      }
      if let key = request.key {
        keys[KeyName(key)] = KnownKey(
          fingerprint: key.fingerprint.bytes, ids: request.jobs.map(\.id))
      }
      accepted.append(request)
      return .success(.accepted)
    }
    try save(accepted, known: images)
    try addMessages(accepted.flatMap(\.jobs).compactMap { WebhookMessage(endOf: $0, after: nil) })
    return outcomes
  }

  /// Reserves the request's slots in the queue; returns a refusal if there are not enough.
  private static func reserveSlots(
    for request: SubmitRequest, _ places: inout [[UInt8]: Int], _ refusals: Refusals
  ) -> SubmitAnswer? {
    let queued = request.rows.compactMap(\.queue)
    guard let first = request.rows.first(where: { $0.queue != nil }), let job = request.jobs.first
    else { return nil }
    let wanted = queued.reduce(0) { $0 + $1.slots }
    guard
      refusals.hasCapacity(
        for: wanted, of: first.owner, held: places, within: request.capacity, at: job.createdAt)
    else { return .queueFull(wanting: wanted) }
    places[first.owner, default: 0] += wanted
    return nil
  }

  /// Reserves the bytes of the request's records in ``QueueCapacity/recordBytes``; returns `false`
  /// if they do not fit.
  private static func reserveRecordBytes(
    _ request: SubmitRequest, _ stored: inout [[UInt8]: Int], _ refusals: Refusals
  ) -> Bool {
    guard let first = request.rows.first, let job = request.jobs.first else { return true }
    let bytes = request.rows.reduce(0) { $0 + $1.storedBytes }
    let hasRoom = refusals.hasCapacity(
      for: bytes, of: first.owner, held: stored,
      within: QueueCapacity(request.capacity.recordBytes), at: job.createdAt)
    if hasRoom { stored[first.owner, default: 0] += bytes }
    return hasRoom
  }

  /// The owners of the jobs that refer to images, by digest.
  static func owners(_ requests: [SubmitRequest]) -> [[UInt8]: [UInt8]] {
    var owners: [[UInt8]: [UInt8]] = [:]
    for row in requests.flatMap(\.rows) {
      for digest in [row.image, row.source].compactMap(\.self) {
        owners[digest] = Image.owner(owners[digest], and: row.owner)
      }
    }
    return owners
  }

  func save(_ requests: [SubmitRequest], known images: [[UInt8]: Bool]) throws {
    guard !requests.isEmpty else { return }
    var begun: [[UInt8]: Int] = [:]
    for request in requests { begun.merge(request.images) { first, _ in first } }
    try addImages(begun, known: images, owners: Self.owners(requests))
    try insertKeys(
      requests.compactMap { request in
        request.key.map { (key: $0, since: request.since, jobs: request.jobs.map(\.id)) }
      })
    let rows = requests.flatMap(\.rows)
    let tags = requests.flatMap { zip($0.rows, $0.jobs).map { (row: $0, tags: $1.tags) } }
    try insert(rows, tags: tags)
    let holders = rows.filter { $0.source != nil || $0.image != nil }.map(\.id)
    try addDeletionCandidates(deleteReservations(of: holders).subtracting(begun.keys))
  }
}

/// Idempotency keys. A row is written once and never changed; it is deleted when it expires.
extension Transaction {
  struct KeyName: Hashable {
    let owner: [UInt8]
    let key: [UInt8]

    init(_ key: IdempotencyKey) {
      self.init(owner: Array(key.owner.name.utf8), key: IndexedText.bytes(of: key.key))
    }

    init(owner: [UInt8], key: [UInt8]) { (self.owner, self.key) = (owner, key) }

    static func < (a: KeyName, b: KeyName) -> Bool {
      a.owner == b.owner
        ? a.key.lexicographicallyPrecedes(b.key) : a.owner.lexicographicallyPrecedes(b.owner)
    }
  }

  struct KnownKey {
    let fingerprint: [UInt8]
    let ids: [JobID]
  }

  static let forgetKeys = """
    DELETE FROM keys WHERE (owner, key) IN (SELECT owner, key FROM keys
      WHERE created_at < (SELECT moment($1)) - $2 ORDER BY created_at LIMIT $3 FOR UPDATE SKIP LOCKED)
    """

  func knownKeys(_ keys: [IdempotencyKey]) throws -> [KeyName: KnownKey] {
    guard !keys.isEmpty else { return [:] }
    let names = keys.map(KeyName.init)
    let rows = try execute(
      """
      SELECT k.owner, k.key, k.fingerprint, k.jobs
      FROM unnest($1, $2) AS n (owner, key) JOIN keys k ON k.owner = n.owner AND k.key = n.key
      """, [.byteStrings(names.map(\.owner)), .byteStrings(names.map(\.key))])
    var known: [KeyName: KnownKey] = [:]
    for row in rows.all {
      let name = KeyName(owner: rows.bytes(row, 0) ?? [], key: rows.bytes(row, 1) ?? [])
      known[name] = KnownKey(
        fingerprint: rows.bytes(row, 2) ?? [], ids: Self.ids(rows.bytes(row, 3) ?? []))
    }
    return known
  }

  static func ids(_ bytes: [UInt8]) -> [JobID] {
    stride(from: 0, to: bytes.count, by: 16).compactMap { start in
      bytes[start...].prefix(16).withUnsafeBytes { JobID(bytes: $0) }
    }
  }

  func knownJobs(_ ids: [JobID]) throws -> Set<JobID> {
    let rows = try execute("SELECT id FROM jobs WHERE id = ANY ($1)", [.ids(ids)])
    return Set(rows.all.compactMap { rows.id($0, 0) })
  }

  /// Stores keys. If two transactions store the same key at the same time, one fails, and finds the
  /// other's key when repeated.
  func insertKeys(_ keys: [(key: IdempotencyKey, since: Timestamp, jobs: [JobID])]) throws {
    let keyed = keys.map { (name: KeyName($0.key), $0) }.sorted { $0.name < $1.name }
    guard !keyed.isEmpty else { return }
    try add(
      """
      INSERT INTO keys (owner, key, fingerprint, created_at, jobs) SELECT * FROM unnest($1, $2, $3, $4, $5)
      """,
      [
        .byteStrings(keyed.map(\.name.owner)), .byteStrings(keyed.map(\.name.key)),
        .byteStrings(keyed.map(\.1.key.fingerprint.bytes)),
        .ints(keyed.map(\.1.since.milliseconds)),
        .byteStrings(keyed.map { $0.1.jobs.flatMap(\.bytes) }),
      ])
  }
}
