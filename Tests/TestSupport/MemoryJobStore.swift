package import Jobs
internal import Synchronization

/// Stores jobs in memory with the same contract as the real stores. Its calls can be made to fail.
package actor MemoryJobStore: JobQueue, JobRecords, ImageReferences {
  struct Row {
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
  var rows: [JobID: Row] = [:]
  /// The owner whose jobs have referred to each image; an empty name if there are several owners.
  var imageOwners: [ImageDigest: Owner] = [:]
  /// Jobs as they were before their last claim.
  var unclaimed: [JobID: Job] = [:]
  private var ownerBytes: [Int: [Owner: Int]] = [:]
  var keys: [String: (fingerprint: ImageDigest, at: Timestamp, jobs: [JobID])] = [:]
  var sizes: [ImageDigest: Int] = [:]
  var reservations: [JobID: (by: Instance, images: Set<ImageDigest>)] = [:]
  /// Evicted images that are not removed yet, with their sizes.
  var pendingDeletion: [ImageDigest: (by: Instance, bytes: Int)] = [:]
  var cache: [CacheEntry.ID: CachedEntry] = [:]
  var messages: [WebhookMessage.ID: KeptMessage] = [:]
  private var clock: WallClock
  var lastEntry = 0
  private var lastRank: Int64 = 0
  private var lastClaim: Int64 = 0
  var lastInstance: Int64 = 0
  var leases: [Instance: Timestamp] = [:]
  /// The earlier claims.
  var served = ServedQueues()
  /// The numbers of batches in ``QueuePosition``.
  private var batchNumbers: [BatchID: Int64] = [:]
  /// The earliest time of an origin's next request under its rate limit, in microseconds.
  var nextAsking: [String: Int64] = [:]
  var constrained: Bool?
  /// The owners that were refused recently, for lines of batches and for other jobs. They hold no capacity.
  private var refusals: [Bool: FairShare<Owner>] = [:]
  var batches: [BatchID: Batch] = [:]
  /// Whether a message about a batch's end is due although no client has read the batch.
  var isBatchTold = false
  /// How often a batch was read.
  package internal(set) var looksAtBatches = 0
  var rejectedLines: [BatchID: [RejectedLine]] = [:]
  /// The jobs of batches, as of the last count.
  var countedMembers: [BatchID: [JobID: BatchChange.Member]] = [:]
  private var failures: [StoreError] = []
  private var failuresOf: [Call: [StoreError]] = [:]
  /// Images that a call marked as pending deletion before its response was lost.
  var unheard: [ImageName] = []
  private var givingWay: ImageDigest?
  /// Jobs that no page lists, as if their records were unreadable.
  private var spoilt: Set<JobID> = []
  /// The number of calls that submit jobs.
  package private(set) var submissions = 0
  /// The number of calls that ask which images are unknown to the store.
  package internal(set) var looksForOrphans = 0
  private var witness: (@Sendable (_ before: Job?, _ after: Job) -> Void)?
  private var isTorn = false
  private var tryAgain: TryAgain?
  private var isHeld = false
  private var heldCall: Call?
  private var held: [CheckedContinuation<Void, Never>] = []
  nonisolated let exchange = InstanceEventBus()
  /// Events that are held back with their senders; nil: events are delivered at once.
  nonisolated let heldEvents = Mutex<[(InstanceEvent, Instance)]?>(nil)
  package nonisolated let isExclusive: Bool
  private let generation: Int64

  /// - Parameters:
  ///   - isExclusive: whether the store reports that no other instance uses it.
  ///   - generation: the generation in the names of images.
  ///   - now: the store's clock.
  package init(
    isExclusive: Bool = true, generation: Int64 = 0,
    now: @escaping WallClock = { ManualClock().now }
  ) {
    self.isExclusive = isExclusive
    self.generation = generation
    clock = now
  }

  /// The name under which an image is stored.
  func name(of image: ImageDigest) -> ImageName { ImageName(image, generation: generation) }

  /// Hides these jobs from all pages.
  package func spoil(_ ids: Set<JobID>) { spoilt.formUnion(ids) }

  /// Lets the next completion evict this image.
  package func giveWay(_ image: ImageDigest) { givingWay = image }

  /// Replaces the clock.
  package func use(_ clock: @escaping WallClock) { self.clock = clock }

  var now: Timestamp { clock() }

  /// Reports each change of a job's phase to `witness`, in order.
  package func show(to witness: @escaping @Sendable (_ before: Job?, _ after: Job) -> Void) {
    self.witness = witness
  }

  /// Makes updates overwrite concurrent changes. Used to test that lost updates are detected.
  package func tear() { isTorn = true }

  /// Descriptions of unreleased claims and reservations; empty if no worker is active.
  package var leftovers: [String] {
    rows.values.filter { $0.claim != nil || $0.job.phase == .loading }.map {
      "the claim of \($0.job.id)"
    }
      + reservations.map { "the reservation of \($0.value.images.count) images by \($0.key)" }
  }

  func witnessed(_ before: Job?, _ after: Job) { witness?(before, after) }

  /// Makes a change as another instance of the store would.
  /// - Parameter errors: errors for the next reads of a job, one each.
  package func changeAsAnother(
    _ id: JobID, _ change: @escaping @Sendable (inout Job) -> Bool,
    thenFailing errors: [StoreError] = []
  ) async throws {
    _ = try await update(id, under: nil, change)
    failuresOf[.job] = errors
    exchange.publish(.changed(id), from: .none)
  }

  /// Calls that can be made to fail separately.
  package enum Call: Sendable {
    case cache, job, lowData, orphans, abandonedAnswer, endStopped, complete, forget
    // These calls succeed, and then throw.
    case submitAnswer, completeAnswer, forgetAnswer, removeAnswer
    // These calls compute their results first, and return them after a delay.
    case leavingAnswer, jobAnswer, updateAnswer
  }

  /// Makes the next calls throw these errors, one each.
  package func fail(with errors: [StoreError]) { failures += errors }

  /// Makes the next calls of this kind throw these errors, one each.
  package func fail(with errors: [StoreError], of call: Call) {
    failuresOf[call, default: []] += errors
  }

  func mayFail(_ call: Call) async throws(StoreError) {
    try await mayFail()
    await mayWait(call)
    try loseAnswer(of: call)
  }

  /// Waits if this kind of call is held.
  func mayWait(_ call: Call) async {
    if heldCall == call { await withCheckedContinuation { held.append($0) } }
  }

  func loseAnswer(of call: Call) throws(StoreError) {
    if failuresOf[call]?.isEmpty == false { throw failuresOf[call]!.removeFirst() }
  }

  /// Makes all calls wait until ``letGo()``.
  package func hold() { isHeld = true }

  /// Makes calls of this kind wait until ``letGo()``.
  package func hold(_ call: Call) { heldCall = call }

  /// Resumes the calls that wait.
  package func letGo() {
    (isHeld, heldCall) = (false, nil)
    for call in held { call.resume() }
    held = []
  }

  /// The number of calls that wait.
  package var heldCalls: Int { held.count }

  /// Runs at the start of every call.
  func mayFail() async throws(StoreError) {
    if isHeld { await withCheckedContinuation { held.append($0) } }
    if !failures.isEmpty { throw failures.removeFirst() }
  }

  package func submit(
    _ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity
  ) async throws(StoreError) -> SubmitOutcome {
    submissions += 1
    try await mayFail()
    let name = key.map { "\($0.owner.name)\n\($0.key)" }
    if let key, let name, let known = keys[name] {
      guard known.fingerprint == key.fingerprint else { return .keyReused }
      return .repeated(known.jobs.map { id in rows[id].map { .kept($0.job) } ?? .gone(id) })
    }
    guard hasRoom(for: jobs, within: capacity) else {
      return .queueFull(wanting: jobs.count { $0.phase == .queued })
    }
    let images = jobs.compactMap { $0.keptImage?.keptDigest }
    guard images.allSatisfy({ sizes[$0] != nil }) else { return .imageGone }
    guard jobs.allSatisfy({ rows[$0.id] == nil }) else {
      throw .unavailable(detail: "the job already exists")
    }
    for job in jobs {
      append(job)
      reservations[job.id] = nil
    }
    if let key, let name, let first = jobs.first {
      keys[name] = (key.fingerprint, first.createdAt, jobs.map(\.id))
    }
    try loseAnswer(of: .submitAnswer)
    return .accepted
  }

  func append(_ job: Job) {
    lastRank += 1
    save(Row(job: job, rank: lastRank, source: job.capturedSource?.digest))
    enqueueMessage(WebhookMessage(endOf: job, after: nil))
  }

  private func hasRoom(for jobs: [Job], within capacity: QueueCapacity) -> Bool {
    let coming = jobs.filter { $0.phase == .queued }
    guard let first = coming.first else { return true }
    return hasRoom(
      for: coming.count, of: first.owner, ofBatch: false, within: capacity, at: first.createdAt)
  }

  func hasRoom(
    for count: Int, of owner: Owner, ofBatch: Bool, within capacity: QueueCapacity,
    at moment: Timestamp
  ) -> Bool {
    var places = refusals[ofBatch, default: FairShare()]
    for row in rows.values where row.job.phase == .queued && (row.job.batch != nil) == ofBatch {
      places.acquireUnchecked(1, for: row.job.owner)
    }
    guard count <= capacity.ofOwner - places.share(of: owner) else { return false }
    if places.hasCapacity(for: count, of: owner, within: capacity.slots, at: moment) { return true }
    // Record only the refusal.
    refusals[ofBatch, default: FairShare()].recordDemand(of: owner, at: moment)
    return false
  }

  package func job(_ id: JobID) async throws(StoreError) -> Job? {
    try await mayFail(.job)
    guard let job = rows[id]?.job else { return nil }
    await mayWait(.jobAnswer)
    return isInPurgedBatch(job) ? nil : job
  }

  private func isInPurgedBatch(_ job: Job) -> Bool {
    job.batch.map { batches[$0.id]?.isPurged == true } ?? false
  }

  package func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage {
    try await mayFail()
    let fitting = rows.values.map(\.job).filter { job in
      !isInPurgedBatch(job) && (query.owner == nil || job.owner == query.owner)
        && (query.phases.isEmpty || query.phases.contains(job.phase))
        && (query.tag == nil || job.tags.contains(tag: query.tag!))
        && (query.end == nil || job.id < query.end!)
        && (query.start == nil || job.id >= query.start!)
        && (query.batch == nil || job.batch?.id == query.batch) && query.selects(job)
        && (job.expiresAt == nil || job.expiresAt! > query.now)
    }.sorted { $0.id > $1.id }
    var (page, bytes) = (JobPage(jobs: [], hasMore: false), 0)
    for job in fitting.prefix(query.limit) where bytes < query.maxBytes {
      // The approximate size of a record in the other stores.
      bytes += 256 + job.textBytes
      page.last = job.id
      if !spoilt.contains(job.id) { page.jobs.append(job) }
    }
    page.hasMore = page.last != fitting.last?.id
    if !page.hasMore || page.last == page.jobs.last?.id { page.last = nil }
    return page
  }

  package func claim(
    _ count: Int, for instance: Instance, room: OriginCapacity, owners: OwnerCapacity
  ) async throws(StoreError) -> Claimed {
    try await mayFail()
    try check(instance)
    let moment = now
    let rate = room.overall?.requestsPerSecond ?? 0
    let loaded = loaded(besides: instance)
    let due = queue {
      QueueOrder.isDue($0.notBefore, at: moment) && !isAwaited($0, among: loaded)
    }
    var (queues, jobs) = claimable(due)
    var chooser = ClaimChooser(
      count, at: moment, room: left(of: room, for: instance, at: moment), owners: owners)
    var claimed: [(job: Job, claim: Claim)] = []
    claiming: while true {
      switch chooser.next(from: &queues) {
      case .claim(let job):
        let row = due[Int(job.number)]
        claimed.append(claimRow(row, for: instance, at: moment))
        if !isExclusive { lead(row.job, by: rate, at: moment) }
        queues.ready.addLoading(1, of: job.position.queue)
      case .readReady(let position, _):
        chooser.add(jobs.removeValue(forKey: position) ?? [], at: position, hasMore: false)
      // This claim passes over the job; the next one finds it in its old place.
      case .deferJob, .postpone, .readDeferred: continue
      case .end: break claiming
      }
    }
    served = queues.ready.served
    let next = rows.values.filter { $0.job.phase == .queued }.compactMap(\.job.notBefore)
      .filter { $0 > moment }.min()
    var handover = Claimed(jobs: claimed, nextDue: next)
    let queued = Set(rows.values.filter { $0.job.phase == .queued }.compactMap(\.job.request))
    handover.shared = queued.intersection(claimed.compactMap(\.job.request))
    handover.isQueueEmpty = !rows.values.contains { $0.job.phase == .queued }
    handover.loadingElsewhere = Set(
      queue { $0.notBefore ?? moment <= moment && isAwaited($0, among: loaded) }
        .compactMap(\.job.request))
    return handover
  }

  /// Returns the queues of these jobs and all loading jobs, and the jobs of each position in order. A job's number
  /// is its index.
  private func claimable(_ due: [Row]) -> (ClaimableJobs, [QueuePosition: [QueuedCandidate]]) {
    var queues = ClaimableJobs(after: served)
    for row in rows.values where row.job.phase == .loading {
      queues.ready.addLoading(1, of: position(of: row.job).queue)
    }
    var jobs: [QueuePosition: [QueuedCandidate]] = [:]
    for (index, row) in due.enumerated() {
      let position = position(of: row.job)
      queues.ready.addReady(1, at: position)
      jobs[position, default: []].append(
        QueuedCandidate(
          number: Int64(index), id: row.job.id, position: position, rank: row.rank,
          notBefore: row.job.notBefore, origin: row.job.origin))
    }
    return (queues, jobs)
  }

  private func position(of job: Job) -> QueuePosition {
    var batch: Int64 = 0
    if let id = job.batch?.id {
      if batchNumbers[id] == nil {
        for id in batches.keys.sorted() where batchNumbers[id] == nil {
          batchNumbers[id] = Int64(batchNumbers.count + 1)
        }
      }
      batch = batchNumbers[id] ?? 0
    }
    return QueuePosition(
      priority: job.priority.rawValue, queue: JobQueueName(owner: job.owner, batch: batch))
  }

  /// Whether the job's batch was cancelled, so that the job will be cancelled.
  private func isStopped(_ job: Job) -> Bool {
    job.batch.flatMap { batches[$0.id] }?.isCancelling ?? false
  }

  /// The matching queued jobs, in the order of the queue.
  func queue(_ fits: (Job) -> Bool) -> [Row] {
    rows.values.filter { $0.job.phase == .queued && !isStopped($0.job) && fits($0.job) }.sorted {
      a, b in
      a.job.priority == b.job.priority ? a.rank < b.rank : a.job.priority > b.job.priority
    }
  }

  func claimRow(
    _ row: Row, for instance: Instance, at moment: Timestamp
  ) -> (job: Job, claim: Claim) {
    lastClaim += 1
    var row = row
    let before = row.job
    row.job.start(at: moment, by: instance)
    witnessed(before, row.job)
    let claim = Claim(job: row.job.id, instance: instance, number: lastClaim)
    row.claim = claim
    unclaimed[row.job.id] = before
    rows[row.job.id] = row
    return (row.job, claim)
  }

  package func claim(
    equalTo request: Fingerprint, count: Int, for instance: Instance
  ) async throws(StoreError) -> [(job: Job, claim: Claim)] {
    try await mayFail()
    try check(instance)
    return queue { $0.request == request }.prefix(count).map {
      claimRow($0, for: instance, at: now)
    }
  }

  package func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job? {
    try await begin(change, to: id, under: claim)
    return try make(change, to: id, under: claim)
  }

  package func update(
    _ id: JobID, within capacity: QueueCapacity,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> UpdateOutcome {
    try await begin(change, to: id, under: nil)
    let outcome = try make(change, to: id, within: capacity)
    await mayWait(.updateAnswer)
    return outcome
  }

  /// Runs at the start of an update: fails, loses or repeats it as the test has set.
  private func begin(
    _ change: @escaping @Sendable (inout Job) -> Bool, to id: JobID, under claim: Claim?
  ) async throws(StoreError) {
    try await mayFail()
    if isTorn, let row = rows[id] {
      await Task.yield()
      rows[id] = row
    }
    switch tryAgain.take() {
    case nil: break
    case .afterAnother(let another):
      var undone = rows[id]?.job
      if undone != nil { _ = change(&undone!) }
      _ = try make(another, to: id, under: nil)
    case .afterCommit: _ = try make(change, to: id, under: claim)
    }
  }

  /// Why a store makes a change a second time.
  package enum TryAgain: Sendable {
    /// A concurrent change was committed first, so the change is undone and repeated.
    case afterAnother(@Sendable (inout Job) -> Bool)
    /// The result of the commit was lost, although it had succeeded.
    case afterCommit
  }

  /// Makes the next update, or the next removal after its commit, run twice.
  package func makeAgain(_ tryAgain: TryAgain) { self.tryAgain = tryAgain }

  /// Makes a change, unless it would queue a finished job and the queue is full.
  func make(
    _ change: (inout Job) -> Bool, to id: JobID, within capacity: QueueCapacity
  ) throws(StoreError) -> UpdateOutcome {
    guard var changed = rows[id]?.job else { return .unknown }
    let before = changed
    guard change(&changed) else { return .updated(before) }
    let wantsPlace = before.phase.isFinished && changed.phase == .queued
    let isLine = changed.batch != nil
    if wantsPlace,
      !hasRoom(for: 1, of: changed.owner, ofBatch: isLine, within: capacity, at: now)
    {
      return .queueFull
    }
    let after = changed
    let made = try make(
      { job in
        job = after
        return true
      }, to: id, under: nil)
    return .updated(made ?? after)
  }

  func make(
    _ change: (inout Job) -> Bool, to id: JobID, under claim: Claim?, isRepeated: Bool = false
  ) throws(StoreError) -> Job? {
    guard var row = rows[id] else { return nil }
    if let claim, claim != row.claim {
      return isRepeated && row.lastClaim == claim.number ? row.job : nil
    }
    let before = row.job
    guard change(&row.job) else { return before }
    if isStopped(before) { row.job.discardResult(after: before) }
    if let image = row.job.keptImage, pendingDeletion[image.keptDigest] != nil {
      throw .unavailable(detail: "an image that is pending deletion was not reserved")
    }
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
    enqueueMessage(WebhookMessage(endOf: row.job, after: before.phase))
    if let batch = row.job.batch { _ = counted(batch.id) }
    if hasLed { passOn(before) }
    return row.job
  }

  /// Stores a row, and counts its image unless the image was reserved.
  private func save(_ row: Row) {
    var row = row
    witnessed(rows[row.job.id]?.job, row.job)
    if row.job.submission.dropsOriginal, row.job.phase == .success { row.source = nil }
    rows[row.job.id] = row
    let owner = row.job.owner
    if let image = row.job.keptImage {
      count(image.keptDigest, bytes: image.keptBytes, of: owner)
    }
    if let source = row.source, let bytes = row.job.capturedSource?.bytes {
      count(source, bytes: bytes, of: owner)
    }
  }

  /// An image that several owners use belongs to none of them.
  private func count(_ image: ImageDigest, bytes: Int, of owner: Owner) {
    sizes[image] = sizes[image] ?? bytes
    let known = imageOwners[image]
    imageOwners[image] = known == nil || known == owner ? owner : Owner("")
  }

  package func complete(_ completion: Completion) async throws(StoreError) -> Completed {
    try await mayFail(.complete)
    let before = (rows, sizes)
    let messagesBefore = messages
    var jobs: [Job?] = []
    do throws(StoreError) {
      for claim in completion.claims {
        jobs.append(
          try make(
            completion.change, to: claim.job, under: claim, isRepeated: completion.isRepeated))
      }
    } catch {
      (rows, sizes) = before
      messages = messagesBefore
      throw error
    }
    let gathered = gather(completion, from: before.0)
    if let entry = completion.entry {
      keep(.response(entry), as: entry.id, within: completion.cacheLimit, completion.lastUse)
    }
    evict(downTo: completion.cacheLimit, completion.lastUse)
    if let holder = completion.releasing, gathered.isEmpty { reservations[holder] = nil }
    var completed = Completed(jobs: jobs)
    completed.claimedEqual = gathered
    if let image = givingWay.take() {
      evict(image, for: completion.instance)
      completed.evicted = [name(of: image)]
    }
    try loseAnswer(of: .completeAnswer)
    return completed
  }

  package func jobsWithLowDataImages(
    after id: JobID?, count: Int
  ) async throws(StoreError) -> [Job] {
    try await mayFail(.lowData)
    let fitting = rows.values.map(\.job).filter { job in
      job.phase == .success && job.image?.isKept == true && job.image?.variant == .lowData
        && !job.submission.savesData && (id == nil || job.id > id!)
    }
    return Array(fitting.sorted { $0.id < $1.id }.prefix(count))
  }

  package func remove(
    _ id: JobID, if condition: @escaping @Sendable (Job) -> Bool
  ) async throws(StoreError) -> Removal {
    try await mayFail()
    var removal = removed(id, if: condition)
    if case .afterCommit? = tryAgain {
      tryAgain = nil
      removal = removed(id, if: condition)
    }
    try loseAnswer(of: .removeAnswer)
    return removal
  }

  private func removed(_ id: JobID, if condition: (Job) -> Bool) -> Removal {
    guard let row = rows[id] else { return .unknown }
    guard condition(row.job) else { return .kept(row.job) }
    rows[id] = nil
    forgetMessages(of: id, waiting: true)
    if let batch = row.job.batch { _ = counted(batch.id) }
    if row.leads { passOn(row.job) }
    return .removed(row.job)
  }

  package func addBytes(
    _ came: [Owner: Int], on day: Int
  ) async throws(StoreError) -> [Owner: Int] {
    try await mayFail()
    ownerBytes = ownerBytes.filter { $0.key >= day - 1 }
    ownerBytes[day, default: [:]].merge(came) { $0 + $1 }
    return ownerBytes[day, default: [:]].filter { came[$0.key] != nil }
  }

  package func deleteKeys(olderThan age: Duration, count: Int) async throws(StoreError) -> Int {
    try await mayFail()
    let moment = now + (.zero - age)
    let due = keys.filter { $0.value.at < moment }.sorted { $0.value.at < $1.value.at }
      .prefix(count)
    for key in due { keys[key.key] = nil }
    return due.count
  }

  package func expire(_ count: Int) async throws(StoreError) -> [JobID] {
    try await mayFail()
    let moment = now
    let due = rows.values.map(\.job).filter { $0.expiresAt.map { $0 <= moment } ?? false }
      .sorted { $0.expiresAt! < $1.expiresAt! }.prefix(count)
    for job in due {
      rows[job.id] = nil
      forgetMessages(of: job.id, waiting: false)
    }
    return due.map(\.id)
  }

  package func counts() async throws(StoreError) -> StoreCounts {
    var jobs = Dictionary(uniqueKeysWithValues: Phase.allCases.map { ($0, 0) })
    for row in rows.values { jobs[row.job.phase, default: 0] += 1 }
    return StoreCounts(
      jobs: jobs, images: sizes.count, imageBytes: sizes.values.reduce(0, +))
  }
}

extension JobQueue {
  /// Claims jobs of any owner.
  package func claim(
    _ count: Int, for instance: Instance, room: OriginCapacity
  ) async throws(StoreError) -> Claimed {
    try await claim(count, for: instance, room: room, owners: .unlimited)
  }
}
