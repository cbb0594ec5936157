public import Jobs

/// Keeps jobs in memory by the same contract as the real store; can be told to fail.
public actor MemoryJobStore: JobStore {
  private struct Row {
    var job: Job
    var rank: Double
    var claim: Int64?
  }
  private var rows: [JobID: Row] = [:]
  private var keys: [String: (fingerprint: ImageDigest, jobs: [JobID])] = [:]
  private var sizes: [ImageDigest: Int] = [:]
  private var reservations: [ImageHolder: ImageDigest] = [:]
  private var leaving: Set<ImageDigest> = []
  private var lastRank = 0.0
  private var lastClaim: Int64 = 0
  private var failures: [StoreError] = []
  private nonisolated let others: (stream: AsyncStream<JobID>, AsyncStream<JobID>.Continuation)

  public init() { others = AsyncStream.makeStream() }

  public nonisolated func changesByOthers() -> AsyncStream<JobID> { others.stream }

  /// Does what another service that shares the store would do.
  public func changeAsAnother(_ id: JobID, _ change: @escaping @Sendable (inout Job) -> Bool)
    async throws
  {
    _ = try await update(id, under: nil, change)
    others.1.yield(id)
  }

  /// The next calls throw these, one each.
  public func fail(with errors: [StoreError]) { failures += errors }

  private func mayFail() throws(StoreError) {
    if !failures.isEmpty { throw failures.removeFirst() }
  }

  public func submit(
    _ jobs: [Job], key: IdempotencyKey?, capacity: Int
  ) async throws(StoreError) -> SubmitOutcome {
    try mayFail()
    let name = key.map { "\($0.owner.name)\n\($0.key)" }
    if let key, let name, let known = keys[name] {
      guard known.fingerprint == key.fingerprint else { return .keyReused }
      return .repeated(known.jobs.compactMap { rows[$0]?.job })
    }
    let queued = rows.values.count { $0.job.phase == .queued }
    guard queued + jobs.count <= capacity else { return .queueFull }
    for job in jobs {
      lastRank += 1
      rows[job.id] = Row(job: job, rank: lastRank)
      reservations[.upcoming(job.id)] = nil
    }
    if let key, let name { keys[name] = (key.fingerprint, jobs.map(\.id)) }
    return .accepted
  }

  public func job(_ id: JobID) async throws(StoreError) -> Job? {
    try mayFail()
    return rows[id]?.job
  }

  public func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage {
    try mayFail()
    let fitting = rows.values.map(\.job).filter { job in
      (query.owner == nil || job.owner == query.owner)
        && (query.phases.isEmpty || query.phases.contains(job.phase))
        && (query.tag == nil || job.tags.contains(query.tag!))
        && (query.before == nil || job.id < query.before!)
        && (job.expiresAt == nil || job.expiresAt! > query.now)
    }.sorted { $0.id > $1.id }
    return JobPage(
      jobs: Array(fitting.prefix(query.limit)), hasMore: fitting.count > query.limit)
  }

  public func claim(_ count: Int, at moment: Timestamp) async throws(StoreError) -> Claimed {
    try mayFail()
    let queued = rows.values.filter { $0.job.phase == .queued }
    let due = queued.filter { $0.job.notBefore ?? moment <= moment }.sorted { a, b in
      a.job.priority == b.job.priority ? a.rank < b.rank : a.job.priority > b.job.priority
    }
    var claimed: [(job: Job, claim: Claim)] = []
    for row in due.prefix(count) {
      lastClaim += 1
      var job = row.job
      job.start(at: moment)
      rows[job.id] = Row(job: job, rank: row.rank, claim: lastClaim)
      claimed.append((job, Claim(job: job.id, number: lastClaim)))
    }
    let next = queued.compactMap(\.job.notBefore).filter { $0 > moment }.min()
    return Claimed(jobs: claimed, nextDue: next)
  }

  public func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job? {
    try mayFail()
    guard var row = rows[id], claim == nil || row.claim == claim?.number else { return nil }
    let before = row.job.priority
    guard change(&row.job) else { return row.job }
    if row.job.priority > before {
      lastRank += 1
      row.rank = lastRank
    } else if row.job.priority < before {
      let level = row.job.priority
      row.rank = (rows.values.filter { $0.job.priority == level }.map(\.rank).min() ?? 0) - 1
    }
    if row.job.phase != .loading, let number = row.claim {
      reservations[.claim(Claim(job: id, number: number))] = nil
      row.claim = nil
    }
    rows[id] = row
    return row.job
  }

  public func remove(_ id: JobID) async throws(StoreError) -> Bool {
    try mayFail()
    guard let row = rows.removeValue(forKey: id) else { return false }
    if let number = row.claim { reservations[.claim(Claim(job: id, number: number))] = nil }
    keys = keys.filter { !$0.value.jobs.contains(id) }
    return true
  }

  public func reserve(
    _ image: ImageDigest, bytes: Int, for holder: ImageHolder, limit: Int
  ) async throws(StoreError) -> Reservation {
    try mayFail()
    if leaving.contains(image) { return .leaving }
    if case .claim(let claim) = holder, rows[claim.job]?.claim != claim.number { return .claimLost }
    var others = sizes
    others[image] = nil
    var gaveWay: [ImageDigest] = []
    var changed = rows
    let oldest = rows.values.filter { $0.job.phase == .success && $0.job.image?.isKept == true }
      .sorted { $0.job.finishedAt! < $1.job.finishedAt! }
    for row in oldest where others.values.reduce(0, +) + bytes > limit {
      guard let digest = row.job.image?.digest, digest != image,
        !reservations.values.contains(digest), others[digest] != nil
      else { continue }
      for (id, row) in changed where row.job.image?.digest == digest {
        changed[id]?.job.loseImage()
      }
      others[digest] = nil
      gaveWay.append(digest)
    }
    guard others.values.reduce(0, +) + bytes <= limit else { return .full }
    rows = changed
    sizes = others
    sizes[image] = bytes
    leaving.formUnion(gaveWay)
    reservations[holder] = image
    return .reserved(gaveWay: gaveWay)
  }

  public func release(_ upcoming: JobID) async throws(StoreError) {
    reservations[.upcoming(upcoming)] = nil
  }

  public func expire(at moment: Timestamp, count: Int) async throws(StoreError) -> [JobID] {
    try mayFail()
    let due = rows.values.filter { $0.job.expiresAt.map { $0 <= moment } ?? false }.prefix(count)
    for row in due { rows[row.job.id] = nil }
    return due.map(\.job.id)
  }

  public func abandonedImages(_ count: Int) async throws(StoreError) -> [ImageDigest] {
    try mayFail()
    let abandoned = sizes.keys.filter { !isReferred($0) }.prefix(count)
    for digest in abandoned { sizes[digest] = nil }
    leaving.formUnion(abandoned)
    return Array(abandoned)
  }

  public func forget(_ images: [ImageDigest]) async throws(StoreError) { leaving.subtract(images) }

  public func refers(to image: ImageDigest) async throws(StoreError) -> Bool { isReferred(image) }

  public func recover() async throws(StoreError) -> Int {
    try mayFail()
    leaving = []
    reservations = [:]
    let lost = rows.values.filter { $0.job.phase == .loading }
    for row in lost {
      var row = row
      row.job.requeueAfterCrash()
      row.claim = nil
      rows[row.job.id] = row
    }
    return lost.count
  }

  public func counts() async throws(StoreError) -> StoreCounts {
    StoreCounts(
      jobs: Dictionary(grouping: rows.values, by: \.job.phase).mapValues(\.count),
      images: sizes.count, imageBytes: sizes.values.reduce(0, +))
  }

  private func isReferred(_ image: ImageDigest) -> Bool {
    reservations.values.contains(image)
      || rows.values.contains { row in
        if case .captured(image, _, _) = row.job.submission.source { return true }
        return row.job.image?.isKept == true && row.job.image?.digest == image
      }
  }
}
