public import Jobs

/// Keeps jobs in memory by the same contract as the real store; can be told to fail.
public actor MemoryJobStore: JobStore {
  struct Row {
    var job: Job
    var rank: Double
    var claim: Int64?
    /// The captured source, while it is kept.
    var source: ImageDigest?
  }
  var rows: [JobID: Row] = [:]
  private var keys: [String: (fingerprint: ImageDigest, jobs: [JobID])] = [:]
  var sizes: [ImageDigest: Int] = [:]
  var reservations: [JobID: Set<ImageDigest>] = [:]
  /// Images that gave way, with their sizes.
  var leaving: [ImageDigest: Int] = [:]
  var cache: [CacheEntry.ID: CachedEntry] = [:]
  /// The latest moment heard of.
  var latest = Timestamp(milliseconds: 0)
  private let clock: WallClock?
  var lastEntry = 0
  private var lastRank = 0.0
  private var lastClaim: Int64 = 0
  private var handedOver = 0
  private var failures: [StoreError] = []
  private nonisolated let others: (stream: AsyncStream<JobID>, AsyncStream<JobID>.Continuation)

  /// - Parameter now: tells when a cache entry is stored; nil: at the latest moment that it heard of.
  public init(now: WallClock? = nil) {
    clock = now
    others = AsyncStream.makeStream()
  }

  var now: Timestamp { clock?() ?? latest }

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

  func mayFail() throws(StoreError) {
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
    let coming = jobs.count { $0.phase == .queued }
    let queued = rows.values.count { $0.job.phase == .queued }
    guard coming == 0 || queued + coming <= capacity else { return .queueFull }
    let images = jobs.compactMap { $0.image?.isKept == true ? $0.image?.digest : nil }
    guard images.allSatisfy({ sizes[$0] != nil }) else { return .imageGone }
    for job in jobs {
      lastRank += 1
      save(Row(job: job, rank: lastRank, source: job.capturedSource?.digest))
      reservations[job.id] = nil
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

  public func claim(_ count: Int, at moment: Timestamp, room: OriginRoom) async throws(StoreError)
    -> Claimed
  {
    try mayFail()
    var room = room
    var claimed: [(job: Job, claim: Claim)] = []
    while claimed.count < count, let row = next(at: moment, room: room) {
      claimed.append(take(row, at: moment))
      handedOver += 1
      room.take(row.job.origin)
    }
    let next = rows.values.filter { $0.job.phase == .queued }.compactMap(\.job.notBefore)
      .filter { $0 > moment }.min()
    var handover = Claimed(jobs: claimed, nextDue: next)
    let queued = Set(rows.values.filter { $0.job.phase == .queued }.compactMap(\.job.request))
    handover.shared = queued.intersection(claimed.compactMap(\.job.request))
    return handover
  }

  private func next(at moment: Timestamp, room: OriginRoom) -> Row? {
    let due = queue { $0.notBefore ?? moment <= moment && room[$0.origin] > 0 }
    guard handedOver % 8 == 7 else { return due.first }
    let heads = Priority.allCases.compactMap { level in due.first { $0.job.priority == level } }
    let oldest = heads.min { $0.job.id < $1.job.id }
    guard let oldest, moment - oldest.job.id.moment > .seconds(30) else { return due.first }
    return oldest
  }

  /// Queued jobs that fit, in the order of the queue.
  private func queue(_ fits: (Job) -> Bool) -> [Row] {
    rows.values.filter { $0.job.phase == .queued && fits($0.job) }.sorted { a, b in
      a.job.priority == b.job.priority ? a.rank < b.rank : a.job.priority > b.job.priority
    }
  }

  private func take(_ row: Row, at moment: Timestamp) -> (job: Job, claim: Claim) {
    latest = max(latest, moment)
    lastClaim += 1
    var row = row
    row.job.start(at: moment)
    row.claim = lastClaim
    rows[row.job.id] = row
    return (row.job, Claim(job: row.job.id, number: lastClaim))
  }

  public func claim(
    equalTo request: Fingerprint, count: Int, at moment: Timestamp
  ) async throws(StoreError) -> [(job: Job, claim: Claim)] {
    try mayFail()
    return queue { $0.request == request }.prefix(count).map { take($0, at: moment) }
  }

  public func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job? {
    try mayFail()
    return make(change, to: id, under: claim)
  }

  private func make(
    _ change: (inout Job) -> Bool, to id: JobID, under claim: Claim?
  ) -> Job? {
    guard var row = rows[id], claim == nil || claim == Claim(job: id, number: row.claim ?? -1)
    else { return nil }
    let before = row.job
    guard change(&row.job) else { return before }
    if row.job.priority > before.priority
      || (before.phase.isFinished && row.job.phase == .queued)
    {
      lastRank += 1
      row.rank = lastRank
    } else if row.job.priority < before.priority {
      row.rank = (rows.values.map(\.rank).min() ?? 0) - 1
    }
    if row.job.phase != .loading { row.claim = nil }
    save(row)
    return row.job
  }

  /// Keeps a row, and counts its image if that was not reserved.
  private func save(_ row: Row) {
    rows[row.job.id] = row
    if let moment = row.job.finishedAt { latest = max(latest, moment) }
    if let image = row.job.image, image.isKept { count(image.digest, bytes: image.bytes) }
    if let source = row.source, let bytes = row.job.capturedSource?.bytes {
      count(source, bytes: bytes)
    }
  }

  private func count(_ image: ImageDigest, bytes: Int) { sizes[image] = sizes[image] ?? bytes }

  public func settle(_ settlement: Settlement) async throws(StoreError) -> [Job?] {
    try mayFail()
    let jobs = settlement.claims.map { make(settlement.change, to: $0.job, under: $0) }
    if let entry = settlement.entry {
      keep(.response(entry), as: entry.id, within: settlement.cacheLimit)
    }
    evict(downTo: settlement.cacheLimit)
    if let holder = settlement.releasing { reservations[holder] = nil }
    return jobs
  }

  public func jobsWithLowDataImages(
    after id: JobID?, count: Int
  ) async throws(StoreError) -> [Job] {
    try mayFail()
    let fitting = rows.values.map(\.job).filter { job in
      job.phase == .success && job.image?.isKept == true && job.image?.variant == .lowData
        && !job.submission.savesData && (id == nil || job.id > id!)
    }
    return Array(fitting.sorted { $0.id < $1.id }.prefix(count))
  }

  public func remove(_ id: JobID) async throws(StoreError) -> Bool {
    try mayFail()
    guard rows[id] != nil else { return false }
    forget(id)
    return true
  }

  private func forget(_ id: JobID) {
    rows[id] = nil
    keys = keys.filter { !$0.value.jobs.contains(id) }
  }

  public func expire(at moment: Timestamp, count: Int) async throws(StoreError) -> [JobID] {
    try mayFail()
    let due = rows.values.map(\.job).filter { $0.expiresAt.map { $0 <= moment } ?? false }
      .sorted { $0.expiresAt! < $1.expiresAt! }.prefix(count)
    for job in due { forget(job.id) }
    return due.map(\.id)
  }

  /// The service has been started anew.
  public func recover() async throws(StoreError) -> Int {
    try mayFail()
    handedOver = 0
    reservations = [:]
    sizes.merge(leaving) { size, _ in size }
    leaving = [:]
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
}

extension JobID {
  /// When it was made.
  fileprivate var moment: Timestamp { Timestamp(milliseconds: Int64(high >> 16)) }
}

extension Job {
  /// The bytes that the client sent, if it did.
  fileprivate var capturedSource: (digest: ImageDigest, bytes: Int)? {
    guard case .captured(let digest, let bytes, _) = submission.source else { return nil }
    return (digest, bytes)
  }
}
