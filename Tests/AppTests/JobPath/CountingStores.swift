import Caching
import Jobs
import Synchronization

/// Counts calls by name.
final class Calls: Sendable {
  private let counts = Mutex<[String: Int]>([:])

  func count(_ call: String = #function) {
    let name = String(call.prefix { $0 != "(" })
    counts.withLock { $0[name, default: 0] += 1 }
  }

  var all: [String: Int] { counts.withLock { $0 } }
}

/// Forwards every call to another store and counts it.
struct CountingJobStore: JobStore, CacheStore {
  let store: any JobStore & CacheStore
  let calls: Calls

  var largestEmbedded: Int { store.largestEmbedded }
  var losesAnswers: Bool { store.losesAnswers }

  func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity) async throws(StoreError)
    -> SubmitOutcome
  {
    calls.count()
    return try await store.submit(jobs, key: key, capacity: capacity)
  }

  func open(
    _ batch: Batch, key: IdempotencyKey?, atMost limit: Int
  ) async throws(StoreError) -> BatchOpening {
    calls.count()
    return try await store.open(batch, key: key, atMost: limit)
  }

  func add(
    _ lines: BatchLines, to id: BatchID, capacity: QueueCapacity
  ) async throws(StoreError) -> BatchAddition {
    calls.count()
    return try await store.add(lines, to: id, capacity: capacity)
  }

  func close(_ id: BatchID) async throws(StoreError) -> Batch? {
    calls.count()
    return try await store.close(id)
  }

  func cancel(_ id: BatchID) async throws(StoreError) -> Batch? {
    calls.count()
    return try await store.cancel(id)
  }

  func purge(_ id: BatchID, refusedAfter lines: Int?) async throws(StoreError) -> Bool {
    calls.count()
    return try await store.purge(id, refusedAfter: lines)
  }

  func endStoppedJobs(
    _ count: Int, keptFor retention: Duration,
    deleting cached: @escaping @Sendable (Job) -> CachedImage?
  ) async throws(StoreError) -> StoppedBatchJobs {
    try await store.endStoppedJobs(count, keptFor: retention, deleting: cached)
  }

  func closeAndExpireBatches(idleFor idle: Duration, _ count: Int) async throws(StoreError) -> Int {
    try await store.closeAndExpireBatches(idleFor: idle, count)
  }

  func finishBatches() async throws(StoreError) -> Bool { try await store.finishBatches() }

  func retry(
    _ query: RetryQuery, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> BatchRetry? {
    calls.count()
    return try await store.retry(query, change)
  }

  func deleteUnused(_ id: BatchID, after lines: Int) async throws(StoreError) {
    calls.count()
    try await store.deleteUnused(id, after: lines)
  }

  func batch(_ id: BatchID) async throws(StoreError) -> Batch? {
    calls.count()
    return try await store.batch(id)
  }

  func batches(_ query: BatchQuery) async throws(StoreError) -> BatchPage {
    calls.count()
    return try await store.batches(query)
  }

  func results(_ query: ResultQuery) async throws(StoreError) -> BatchResults? {
    calls.count()
    return try await store.results(query)
  }

  func job(_ id: JobID) async throws(StoreError) -> Job? {
    calls.count()
    return try await store.job(id)
  }

  func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage {
    calls.count()
    return try await store.jobs(query)
  }

  func claim(
    _ count: Int, for instance: Instance, room: OriginCapacity, owners: OwnerCapacity
  ) async throws(StoreError) -> Claimed {
    calls.count()
    return try await store.claim(count, for: instance, room: room, owners: owners)
  }

  func claim(equalTo request: Fingerprint, count: Int, for instance: Instance)
    async throws(StoreError) -> [(job: Job, claim: Claim)]
  {
    calls.count("claimEqual")
    return try await store.claim(equalTo: request, count: count, for: instance)
  }

  func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job? {
    calls.count()
    return try await store.update(id, under: claim, change)
  }

  func update(
    _ id: JobID, within capacity: QueueCapacity,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> UpdateOutcome {
    calls.count()
    return try await store.update(id, within: capacity, change)
  }

  func complete(_ completion: Completion) async throws(StoreError) -> Completed {
    calls.count()
    return try await store.complete(completion)
  }

  func jobsWithLowDataImages(after id: JobID?, count: Int) async throws(StoreError) -> [Job] {
    calls.count()
    return try await store.jobsWithLowDataImages(after: id, count: count)
  }

  func remove(_ id: JobID, if condition: @escaping @Sendable (Job) -> Bool)
    async throws(StoreError) -> Removal
  {
    calls.count()
    return try await store.remove(id, if: condition)
  }

  func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) async throws(StoreError) -> Reservation {
    calls.count()
    return try await store.reserve(
      image, bytes: bytes, as: holder, of: instance, limit: limit)
  }

  func release(_ holder: JobID) async throws(StoreError) {
    calls.count()
    try await store.release(holder)
  }

  func expire(_ count: Int) async throws(StoreError) -> [JobID] {
    calls.count()
    return try await store.expire(count)
  }

  func unreferencedImages(
    _ count: Int, for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    calls.count()
    return try await store.unreferencedImages(count, for: instance)
  }

  func imagesPendingDeletion(
    _ count: Int, of instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    calls.count()
    return try await store.imagesPendingDeletion(count, of: instance)
  }

  func keptImage(_ digest: ImageDigest) async throws(StoreError) -> KeptImage? {
    calls.count()
    return try await store.keptImage(digest)
  }

  func confirmDeletion(_ images: [ImageName]) async throws(StoreError) {
    calls.count()
    try await store.confirmDeletion(images)
  }

  func markLost(_ image: ImageDigest, for instance: Instance) async throws(StoreError) -> LostImage?
  {
    calls.count()
    return try await store.markLost(image, for: instance)
  }

  func markOrphans(
    _ images: [ImageName], for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    calls.count()
    return try await store.markOrphans(images, for: instance)
  }

  func addBytes(
    _ came: [Owner: Int], on day: Int
  ) async throws(StoreError) -> [Owner: Int] {
    calls.count()
    return try await store.addBytes(came, on: day)
  }

  func deleteKeys(olderThan age: Duration, count: Int) async throws(StoreError) -> Int {
    calls.count()
    return try await store.deleteKeys(olderThan: age, count: count)
  }

  func register(for lease: Duration) async throws(StoreError) -> Instance {
    calls.count()
    return try await store.register(for: lease)
  }

  func renew(_ instance: Instance, for lease: Duration) async throws(StoreError) -> Renewal? {
    calls.count()
    return try await store.renew(instance, for: lease)
  }

  func retire(_ instance: Instance) async throws(StoreError) {
    calls.count()
    try await store.retire(instance)
  }

  func claimMessages(_ request: MessageRequest) async throws(StoreError) -> ClaimedMessages {
    calls.count()
    return try await store.claimMessages(request)
  }

  func saveResult(_ message: WebhookMessage, by instance: Instance) async throws(StoreError) {
    calls.count()
    try await store.saveResult(message, by: instance)
  }

  func messages(of subject: JobID) async throws(StoreError) -> [WebhookMessage] {
    calls.count()
    return try await store.messages(of: subject)
  }

  func sendAgain(of subject: JobID) async throws(StoreError) -> WebhookMessage? {
    calls.count()
    return try await store.sendAgain(of: subject)
  }

  func waitingMessages(
    of owner: Owner, upTo limit: Int
  ) async throws(StoreError) -> Int {
    calls.count()
    return try await store.waitingMessages(of: owner, upTo: limit)
  }

  func waitingMessages() async throws(StoreError) -> Int {
    calls.count()
    return try await store.waitingMessages()
  }

  func recoverExpired(_ count: Int) async throws(StoreError) -> [Job] {
    calls.count()
    return try await store.recoverExpired(count)
  }

  var isExclusive: Bool { store.isExclusive }

  func events(for instance: Instance) -> AsyncStream<InstanceEvent> { store.events(for: instance) }

  func publish(_ news: InstanceEvent, from instance: Instance) {
    store.publish(news, from: instance)
  }

  func counts() async throws(StoreError) -> StoreCounts {
    calls.count()
    return try await store.counts()
  }

  func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]] {
    calls.count()
    return try await store.entries(for: keys)
  }

  func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError) {
    calls.count()
    try await store.touch(uses)
  }

  func delete(_ ids: [CacheEntry.ID]) async throws(StoreError) {
    calls.count()
    try await store.delete(ids)
  }

  func delete(keys: [Fingerprint]) async throws(StoreError) -> Int {
    calls.count()
    return try await store.delete(keys: keys)
  }

  func delete(resource: Fingerprint, count: Int) async throws(StoreError) -> [ImageDigest] {
    calls.count()
    return try await store.delete(resource: resource, count: count)
  }

  func clear() async throws(StoreError) -> Int {
    calls.count()
    return try await store.clear()
  }

  func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant? {
    calls.count()
    return try await store.variant(id)
  }

  func save(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse
  ) async throws(StoreError) {
    calls.count()
    try await store.save(variant, within: limit, releasing: holder, lastUse: lastUse)
  }

  func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int) {
    calls.count()
    return try await store.cacheCounts()
  }
}

/// Forwards every call to another image store and counts it.
struct CountingImageStore: ImageStore {
  let store: any ImageStore
  let calls: Calls

  func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError) {
    calls.count()
    try await store.put((staged as? CountingStagedImage)?.image ?? staged, as: name)
  }

  func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    calls.count()
    return try await store.open(digest)
  }

  func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool {
    calls.count()
    return try await store.verify(digest, bytes: bytes)
  }

  func remove(_ name: ImageName) async throws(StoreError) {
    calls.count("removeImage")
    try await store.remove(name)
  }

  func hasRoom() async -> Bool {
    calls.count()
    return await store.hasRoom()
  }

  func sweep(_ remove: @Sendable ([ImageName]) async -> Int) async throws(StoreError) -> Int {
    calls.count()
    return try await store.sweep(remove)
  }
}

/// Forwards every call to another spool and counts it.
struct CountingImageSpool: ImageSpool {
  let spool: any ImageSpool
  let calls: Calls

  func stage() async throws(StoreError) -> any StagedImage {
    calls.count()
    return CountingStagedImage(try await spool.stage(), calls)
  }

  func removeUnfinished() async throws(StoreError) -> Int {
    calls.count()
    return try await spool.removeUnfinished()
  }

  func takePartial(_ key: Fingerprint) async throws(StoreError) -> PartialTransfer? {
    calls.count()
    return try await spool.takePartial(key)
  }

  func deletePartial(_ key: Fingerprint) async throws(StoreError) {
    calls.count("dropPartial")
    try await spool.deletePartial(key)
  }

  var partialBytes: Int { spool.partialBytes }
}

private final class CountingStagedImage: StagedImage {
  let image: any StagedImage
  private let calls: Calls

  init(_ image: any StagedImage, _ calls: Calls) { (self.image, self.calls) = (image, calls) }

  func write(_ bytes: [UInt8]) throws(StoreError) {
    calls.count()
    try image.write(bytes)
  }

  func finish() -> ImageDigest { image.finish() }

  var content: [UInt8]? { image.content }

  func bytes() throws(StoreError) -> StoredBytes { try image.bytes() }

  func identify(_ key: Fingerprint, _ response: PartialResponse) {
    calls.count()
    image.identify(key, response)
  }

  func keepPartial() async throws(StoreError) {
    calls.count()
    try await image.keepPartial()
  }
}
