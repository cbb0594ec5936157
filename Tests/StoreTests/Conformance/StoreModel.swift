import Jobs
import TestSupport

/// An independent model of a job store, for the operations of ``TwoStores``. It has no indexes and no counters: it searches
/// and counts all jobs each time. Its instances are those of the store.
final class StoreModel {
  private struct Row {
    var job: Job
    var rank: Int64
    var claim: Claim?
    /// The number of the claim that last changed the job's phase.
    var lastClaim: Int64?
    /// Whether the job represents its transfer, if instances share the store.
    var leads = false
    /// The captured source, while it is stored.
    var source: ImageDigest?
  }

  /// A cache entry, with the times when it was stored and last used.
  private struct CachedEntry {
    var response: CacheEntry?
    var variant: StoredVariant?
    var digest: ImageDigest
    var bytes: Int
    var stored: Timestamp
    var used: Timestamp
    /// Later entries have greater numbers.
    var number: Int
  }

  private let clock: ManualClock
  private let isShared: Bool
  private var rows: [JobID: Row] = [:]
  private var keys: [String: (fingerprint: ImageDigest, at: Timestamp, jobs: [JobID])] = [:]
  private var sizes: [ImageDigest: Int] = [:]
  /// The owner whose jobs have referred to each image; an empty name if there are several owners.
  private var imageOwners: [ImageDigest: Owner] = [:]
  private var reservations: [JobID: (by: Instance, images: Set<ImageDigest>)] = [:]
  private var cache: [CacheEntry.ID: CachedEntry] = [:]
  private var lastEntry = 0
  private var (lastRank, lastClaim) = (0 as Int64, 0 as Int64)
  private var ended: Set<Instance> = []
  /// The earlier claims.
  private var served = ServedQueues()
  /// The earliest time of an origin's next request under its rate limit, in microseconds.
  private var nextAsking: [String: Int64] = [:]
  /// The owners that were refused recently. They hold no capacity.
  private var refusals = FairShare<Owner>()

  init(isShared: Bool, _ clock: ManualClock) { (self.isShared, self.clock) = (isShared, clock) }

  private var now: Timestamp { clock.now }
}

/// Instances.
extension StoreModel {
  func retire(_ instance: Instance) { ended.insert(instance) }

  /// Ends all instances, as a restart does.
  func restart() {
    ended.formUnion(rows.values.compactMap(\.claim?.instance))
    ended.formUnion(reservations.values.map(\.by))
    served = ServedQueues()
  }

  /// - Returns: the number of requeued jobs.
  func recover() -> Int {
    let lost = rows.values.filter { $0.claim.map { ended.contains($0.instance) } ?? false }
    for var row in lost {
      let (before, hasLed) = (row.job, row.leads)
      row.job.requeue()
      (row.claim, row.lastClaim, row.leads) = (nil, nil, false)
      rows[row.job.id] = row
      if hasLed { passOn(before) }
    }
    reservations = reservations.filter { !ended.contains($0.value.by) }
    return lost.count
  }
}

/// The queue.
extension StoreModel {
  func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity) -> SubmitOutcome {
    if let key, let known = keys[key.key] {
      guard known.fingerprint == key.fingerprint else { return .keyReused }
      return .repeated(known.jobs.map { id in rows[id].map { .kept($0.job) } ?? .gone(id) })
    }
    let queued = jobs.filter { $0.phase == .queued }
    guard hasRoom(for: queued, within: capacity) else { return .queueFull(wanting: queued.count) }
    let images = jobs.compactMap { $0.keptImage?.keptDigest }
    guard images.allSatisfy({ sizes[$0] != nil }) else { return .imageGone }
    for job in jobs {
      lastRank += 1
      save(Row(job: job, rank: lastRank, source: job.capturedSource?.digest))
      reservations[job.id] = nil
    }
    if let key { keys[key.key] = (key.fingerprint, jobs[0].createdAt, jobs.map(\.id)) }
    return .accepted
  }

  private func hasRoom(for jobs: [Job], within capacity: QueueCapacity) -> Bool {
    guard let owner = jobs.first?.owner else { return true }
    var places = refusals
    for row in rows.values where row.job.phase == .queued {
      places.acquireUnchecked(1, for: row.job.owner)
    }
    guard jobs.count <= capacity.ofOwner - places.share(of: owner) else { return false }
    if places.hasCapacity(for: jobs.count, of: owner, within: capacity.slots, at: now) {
      return true
    }
    refusals.recordDemand(of: owner, at: now)
    return false
  }

  func claim(
    _ count: Int, for instance: Instance, room: OriginCapacity, owners: OwnerCapacity
  ) -> (jobs: [(job: Job, claim: Claim)], nextDue: Timestamp?) {
    let loaded = Set(
      rows.values.filter { isShared && $0.leads && $0.claim?.instance != instance }
        .compactMap(\.job.request))
    let due = queue {
      QueueOrder.isDue($0.notBefore, at: now)
        && !QueueOrder.isAwaited(origin: $0.origin, request: $0.request, among: loaded)
    }
    var queues = ClaimableJobs(after: served)
    for row in rows.values where row.job.phase == .loading {
      queues.ready.addLoading(1, of: Self.position(of: row.job).queue)
    }
    // A job's number is its index.
    var jobs: [QueuePosition: [QueuedCandidate]] = [:]
    for (index, row) in due.enumerated() {
      let position = Self.position(of: row.job)
      queues.ready.addReady(1, at: position)
      jobs[position, default: []].append(
        QueuedCandidate(
          number: Int64(index), id: row.job.id, position: position, rank: row.rank,
          notBefore: row.job.notBefore, origin: row.job.origin))
    }
    var chooser = ClaimChooser(count, at: now, room: left(of: room, for: instance), owners: owners)
    var claimed: [(job: Job, claim: Claim)] = []
    claiming: while true {
      switch chooser.next(from: &queues) {
      case .claim(let job):
        let row = due[Int(job.number)]
        claimed.append(claimRow(row, for: instance))
        if isShared { lead(row.job.id, by: room.overall?.requestsPerSecond ?? 0) }
        queues.ready.addLoading(1, of: job.position.queue)
      case .readReady(let position, _):
        chooser.add(jobs.removeValue(forKey: position) ?? [], at: position, hasMore: false)
      // This claim passes over the job; the next one finds it in its old place.
      case .deferJob, .postpone, .readDeferred: continue
      case .end: break claiming
      }
    }
    served = queues.ready.served
    let later = rows.values.filter { $0.job.phase == .queued }.compactMap(\.job.notBefore)
    return (claimed, later.filter { $0 > now }.min())
  }

  private static func position(of job: Job) -> QueuePosition {
    QueuePosition(
      priority: job.priority.rawValue, queue: JobQueueName(owner: job.owner, batch: 0))
  }

  /// The matching queued jobs, in the order of the queue.
  private func queue(_ fits: (Job) -> Bool) -> [Row] {
    rows.values.filter { $0.job.phase == .queued && fits($0.job) }.sorted { a, b in
      a.job.priority == b.job.priority ? a.rank < b.rank : a.job.priority > b.job.priority
    }
  }

  private func claimRow(_ row: Row, for instance: Instance) -> (job: Job, claim: Claim) {
    lastClaim += 1
    var row = row
    row.job.start(at: now, by: instance)
    let claim = Claim(job: row.job.id, instance: instance, number: lastClaim)
    row.claim = claim
    rows[row.job.id] = row
    return (row.job, claim)
  }

  func claim(
    equalTo request: Fingerprint, count: Int, for instance: Instance
  ) -> [(job: Job, claim: Claim)] {
    queue { $0.request == request }.prefix(count).map { claimRow($0, for: instance) }
  }

  /// Returns the part of the origins' capacity that other instances leave.
  private func left(of room: OriginCapacity, for instance: Instance) -> OriginCapacity {
    guard isShared, room.overall != nil else { return room }
    var left = room
    for origin in Set(rows.values.compactMap(\.job.origin)) {
      let others = rows.values.count {
        $0.leads && $0.job.origin == origin && $0.claim?.instance != instance
      }
      let mayAsk = nextAsking[origin] ?? 0 <= now.milliseconds * 1_000
      left.exceptions[origin] = room.remaining(at: origin, besides: others, mayRequest: mayAsk)
    }
    return left
  }

  /// Marks a claimed job as the representative of its transfer, unless an equal job already is.
  private func lead(_ id: JobID, by rate: Double) {
    guard let job = rows[id]?.job, let origin = job.origin else { return }
    let isLed = rows.values.contains { $0.leads && $0.job.request == job.request }
    guard job.request == nil || !isLed else { return }
    rows[id]?.leads = true
    guard rate > 0 else { return }
    let now = now.milliseconds * 1_000
    nextAsking[origin] = max(nextAsking[origin] ?? now, now) + Int64(1_000_000 / rate)
  }

  /// When a representative ends, another job that waits for the same transfer replaces it.
  private func passOn(_ job: Job) {
    guard let request = job.request else { return }
    let heirs = rows.values.filter {
      $0.claim != nil && $0.job.origin != nil && $0.job.request == request
    }
    if let heir = heirs.map(\.job.id).min() { rows[heir]?.leads = true }
  }

  /// Claims the jobs that wait for the jobs that a completion has finished.
  private func gather(_ completion: Completion, from before: [JobID: Row]) -> [ClaimedJob] {
    guard completion.claimsEqual, isShared, completion.instance != .none,
      !ended.contains(completion.instance)
    else { return [] }
    let released = completion.claims.compactMap { claim -> Row? in
      guard let row = before[claim.job], row.claim == claim, rows[claim.job]?.claim == nil else {
        return nil
      }
      return row
    }
    let ended = released.filter { $0.job.origin != nil }
    let requests = Set(ended.compactMap(\.job.request))
    let gathered = queue { job in
      job.origin != nil && !released.contains { $0.job.id == job.id }
        && (job.request.map(requests.contains) ?? false)
    }.map { claimRow($0, for: completion.instance) }
    // If the representative is among the finished jobs, the first of the newly claimed ones replaces it.
    for row in ended where row.leads {
      for id in rows.filter({ $0.value.job.request == row.job.request }).keys {
        rows[id]?.leads = false
      }
      passOn(row.job)
    }
    return gathered.map { ClaimedJob(job: $0.job, claim: $0.claim) }
  }
}

/// Jobs.
extension StoreModel {
  func job(_ id: JobID) -> Job? { rows[id]?.job }

  func update(
    _ id: JobID, under claim: Claim?, isRepeated: Bool = false, _ change: (inout Job) -> Bool
  ) -> Job? {
    guard var row = rows[id] else { return nil }
    if let claim, claim != row.claim {
      return isRepeated && row.lastClaim == claim.number ? row.job : nil
    }
    let before = row.job
    guard change(&row.job) else { return before }
    switch QueueMove(from: before, to: row.job) {
    case .none: break
    case .toTheEnd:
      lastRank += 1
      row.rank = lastRank
    case .ahead: row.rank = (rows.values.map(\.rank).min() ?? 0) - 1
    }
    let hasLed = row.leads && (row.job.phase != .loading || row.job.request == nil)
    if row.job.phase != before.phase { row.lastClaim = claim?.number }
    if row.job.phase != .loading { row.claim = nil }
    if row.job.phase != .loading || row.job.request == nil { row.leads = false }
    save(row)
    if hasLed { passOn(before) }
    return row.job
  }

  /// Stores a row, and counts its image unless the image was reserved.
  private func save(_ row: Row) {
    rows[row.job.id] = row
    if let image = row.job.keptImage {
      count(image.keptDigest, bytes: image.keptBytes, of: row.job.owner)
    }
    if let source = row.source, let bytes = row.job.capturedSource?.bytes {
      count(source, bytes: bytes, of: row.job.owner)
    }
  }

  private func count(_ image: ImageDigest, bytes: Int, of owner: Owner) {
    sizes[image] = sizes[image] ?? bytes
    let known = imageOwners[image]
    imageOwners[image] = known == nil || known == owner ? owner : Owner("")
  }

  func complete(_ completion: Completion) -> Completed {
    let before = rows
    let jobs = completion.claims.map {
      update($0.job, under: $0, isRepeated: completion.isRepeated, completion.change)
    }
    let gathered = gather(completion, from: before)
    if let entry = completion.entry { save(entry, within: completion.cacheLimit) }
    evictEntries(downTo: completion.cacheLimit)
    if let holder = completion.releasing, gathered.isEmpty { reservations[holder] = nil }
    var completed = Completed(jobs: jobs)
    completed.claimedEqual = gathered
    return completed
  }

  func jobsWithLowDataImages(after id: JobID?, count: Int) -> [Job] {
    let fitting = rows.values.map(\.job).filter { job in
      job.phase == .success && job.image?.isKept == true && job.image?.variant == .lowData
        && !job.submission.savesData && (id == nil || job.id > id!)
    }
    return Array(fitting.sorted { $0.id < $1.id }.prefix(count))
  }

  func remove(_ id: JobID) -> Removal {
    guard let row = rows.removeValue(forKey: id) else { return .unknown }
    if row.leads { passOn(row.job) }
    return .removed(row.job)
  }

  func expire() -> Set<JobID> {
    let due = rows.values.map(\.job).filter { $0.expiresAt.map { $0 <= now } ?? false }.map(\.id)
    for id in due { rows[id] = nil }
    return Set(due)
  }

  func deleteKeys(before moment: Timestamp, count: Int) -> Int {
    let due = keys.filter { $0.value.at < moment }.prefix(count)
    for key in due { keys[key.key] = nil }
    return due.count
  }

  func counts() -> StoreCounts {
    var jobs = Dictionary(uniqueKeysWithValues: Phase.allCases.map { ($0, 0) })
    for row in rows.values { jobs[row.job.phase, default: 0] += 1 }
    return StoreCounts(jobs: jobs, images: sizes.count, imageBytes: sizes.values.reduce(0, +))
  }
}

/// Images. Tests confirm each deletion at once, so no image is pending deletion.
extension StoreModel {
  func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) -> StoreUnderTest.ReservationResult {
    let pinned = sizes.filter { isPinned($0.key) || $0.key == image }
    let needed = pinned.values.reduce(0, +) + (sizes[image] == nil ? bytes : 0)
    guard needed <= limit else { return .full }
    reservations[holder, default: (instance, [])].images.insert(image)
    let isNew = sizes[image] == nil
    sizes[image] = sizes[image] ?? bytes
    var evicted: [ImageDigest] = []
    while sizes.values.reduce(0, +) > limit,
      let next = nextToEvict(within: isNew ? limit - bytes : limit, besides: isNew ? image : nil)
    {
      evict(next)
      evicted.append(next)
    }
    return .reserved(evicted: evicted)
  }

  func release(_ holder: JobID) { reservations[holder] = nil }

  /// Evicts the images without references.
  func evictUnreferenced() -> Set<ImageDigest> {
    let images = sizes.keys.filter { !refers(to: $0) }
    for image in images { evict(image) }
    return Set(images)
  }

  /// Whether an image has no record, so that its file would be deleted.
  func isOrphan(_ image: ImageDigest) -> Bool { sizes[image] == nil }

  /// Images without references first, then the one whose finished job or cache entry is oldest. If an owner has more than
  /// half, only that owner's images are considered.
  private func nextToEvict(within limit: Int, besides new: ImageDigest?) -> ImageDigest? {
    var shares: [String: Int] = [:]
    for (image, bytes) in sizes where image != new {
      shares[imageOwners[image]?.name ?? "", default: 0] += bytes
    }
    let total = shares.values.reduce(0, +)
    let most = shares.filter { !$0.key.isEmpty }.max { ($0.value, $0.key) < ($1.value, $1.key) }
    let isOver = most.map { $0.value > limit - limit / 2 && $0.value < total } ?? false
    let images = sizes.keys.filter { !isPinned($0) }
    let ofOwner = images.filter { isOver && (imageOwners[$0]?.name ?? "") == most?.key }
    let abandoned = images.filter { age(of: $0) == nil }
    return [abandoned, ofOwner, images].first { !$0.isEmpty }?.min { a, b in
      let (first, second) = (age(of: a) ?? .first, age(of: b) ?? .first)
      return first == second ? a.hex < b.hex : first < second
    }
  }

  private func evict(_ image: ImageDigest) {
    for (id, row) in rows {
      if row.source == image { rows[id]?.source = nil }
      if row.job.keptImage?.keptDigest == image { rows[id]?.job.markImageEvicted() }
    }
    cache = cache.filter { $0.value.digest != image }
    (imageOwners[image], sizes[image]) = (nil, nil)
  }

  private func isPinned(_ image: ImageDigest) -> Bool {
    reservations.values.contains { $0.images.contains(image) }
      || rows.values.contains { $0.source == image && !$0.job.phase.isFinished }
  }

  func refers(to image: ImageDigest) -> Bool { isPinned(image) || age(of: image) != nil }

  /// When the oldest of its finished jobs ended, or its oldest cache entry was stored.
  private func age(of image: ImageDigest) -> Timestamp? {
    let jobs = rows.values.filter { $0.source == image || $0.job.keptImage?.keptDigest == image }
    let entries = cache.values.filter { $0.digest == image }
    return (jobs.compactMap(\.job.finishedAt) + entries.map(\.stored)).min()
  }
}

extension Timestamp {
  fileprivate static let first = Timestamp(milliseconds: .min)
}

/// The cache.
extension StoreModel {
  func entries(for keys: [Fingerprint]) -> [[CacheEntry]] {
    keys.map { key in
      cache.filter { $0.key.key == key }.values.sorted { $0.number < $1.number }
        .compactMap(\.response)
    }
  }

  func variant(_ id: CacheEntry.ID) -> StoredVariant? { cache[id]?.variant }

  func touch(_ id: CacheEntry.ID) {
    if let used = cache[id]?.used { cache[id]?.used = max(used, now) }
  }

  func delete(_ ids: [CacheEntry.ID]) { for id in ids { cache[id] = nil } }

  func delete(key: Fingerprint) -> Int {
    let ids = cache.keys.filter { $0.key == key }
    delete(ids)
    return ids.count
  }

  func clear() -> Int {
    defer { cache = [:] }
    return cache.count
  }

  func cacheCounts() -> (entries: Int, bytes: Int) { (cache.count, cachedBytes) }

  private func save(_ entry: CacheEntry, within limit: Int) {
    let image = entry.image
    keep(entry.id, image.digest, image.bytes, within: limit) { $0.response = entry }
  }

  func save(_ variant: StoredVariant, within limit: Int, releasing holder: JobID) {
    keep(variant.id, variant.digest, variant.bytes, within: limit) { $0.variant = variant }
    reservations[holder] = nil
  }

  /// Stores an entry, replacing one with the same id, if it is small enough and its image is stored.
  private func keep(
    _ id: CacheEntry.ID, _ digest: ImageDigest, _ bytes: Int, within limit: Int,
    _ fill: (inout CachedEntry) -> Void
  ) {
    cache[id] = nil
    guard bytes <= limit, sizes[digest] != nil else { return }
    lastEntry += 1
    var entry = CachedEntry(digest: digest, bytes: bytes, stored: now, used: now, number: lastEntry)
    fill(&entry)
    cache[id] = entry
    evictEntries(downTo: limit, sparing: id)
  }

  /// Evicts the least recently used entries until the others fit.
  private func evictEntries(downTo limit: Int, sparing spared: CacheEntry.ID? = nil) {
    while cachedBytes > limit,
      let last = cache.filter({ $0.key != spared })
        .min(by: { ($0.value.used, $0.value.number) < ($1.value.used, $1.value.number) })
    {
      cache[last.key] = nil
    }
  }

  /// The bytes of the entries' images; equal images count once.
  private var cachedBytes: Int {
    Dictionary(cache.values.map { ($0.digest, $0.bytes) }) { $1 }.values.reduce(0, +)
  }
}
