package import Jobs
internal import Synchronization

/// Submission of new jobs.
extension JobEngine {
  /// Accepts jobs, all or none. They are durable when this returns.
  ///
  /// - Parameter key: a repeated request with the same key returns the jobs of the first one.
  package func submit(
    _ jobs: [NewJob], by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> [SubmittedJob] {
    try requireAccepting()
    let moment = now()
    let tells = jobs.contains { $0.submission.webhook != nil }
    let refusal = try await refusal(of: caller, withWebhook: tells, at: moment)
    if let refusal, key == nil { throw refusal }
    try await checkLocalNames(jobs)
    let capacity = capacity(for: caller)
    if key == nil {
      // Jobs that the cache may answer need no slot in the queue. The others are refused before any work is done for
      // them.
      let certain = jobs.count { !caching.responses.isOn || !$0.submission.mayUseStoredResponse }
      try checkQueue(for: certain, QueueGate.Client(caller.owner, capacity))
    }
    let queued = jobs.map { job(for: $0, of: caller.owner, at: moment) }
    if let refusal, let key { return try await repeated(queued, key, or: refusal) }
    if let submitted = try await submit(await answeringFromCache(queued), key: key, capacity) {
      return submitted
    }
    return try await submitPlain(queued, key: key, capacity)
  }

  /// Returns why new jobs of the caller are refused now; nil if they are accepted. A repeated request is answered in
  /// any case.
  /// - Parameter tells: whether any of the jobs has a webhook.
  func refusal(
    of caller: Caller, withWebhook tells: Bool, at moment: Timestamp
  ) async throws(JobsError) -> JobsError? {
    if caching.storage.isFull { return .store(.full) }
    if let refusal = queue.dailyBytes.refusal(of: caller, at: moment) { return refusal }
    guard tells, try await !hasRoomForMessages(of: caller.owner) else { return nil }
    return .tooManyMessages
  }

  /// Returns the jobs of an earlier request with the same key, or throws `refusal` if the key is new. It submits with a
  /// capacity of zero, so the store accepts no new job.
  private func repeated(
    _ queued: [Job], _ key: IdempotencyKey, or refusal: JobsError
  ) async throws(JobsError) -> [SubmittedJob] {
    let outcome = try await withStore { () async throws(StoreError) in
      try await store.submit(queued, key: key, capacity: QueueCapacity(.max, ofOwner: 0))
    }
    switch outcome {
    case .repeated(let jobs): return repeated(jobs)
    case .keyReused: throw .keyReused
    case .accepted, .queueFull, .recordsFull, .imageGone: throw refusal
    }
  }

  /// Makes a new job and sets its first URL and what it can share with other jobs.
  func job(
    for new: NewJob, of owner: Owner, at moment: Timestamp, batch: BatchPosition? = nil
  ) -> Job {
    var new = new
    new.submission.spellHosts(by: parts.fetcher)
    var job = Job(new, id: ids.next(at: moment), owner: owner, createdAt: moment, batch: batch)
    job.target = queue.network.firstCandidate(of: job.submission)
    job.skipsCache = !caching.responses.isOn
    return loading.loads.rules.sharing(job)
  }

  /// Submits jobs that use no image of the cache.
  private func submitPlain(
    _ jobs: [Job], key: IdempotencyKey?, _ capacity: QueueCapacity
  ) async throws(JobsError) -> [SubmittedJob] {
    guard let submitted = try await submit(jobs, key: key, capacity) else {
      throw .store(.unavailable(detail: "the store misses an image that no job uses"))
    }
    return submitted
  }

  /// - Returns: nil if an image that answered one of the jobs was deleted meanwhile. Nothing was stored then.
  private func submit(
    _ jobs: [Job], key: IdempotencyKey?, _ capacity: QueueCapacity
  ) async throws(JobsError) -> [SubmittedJob]? {
    try requireAccepting()
    let admission = try admission(for: jobs, key: key, capacity)
    let outcome = try await withStore { () async throws(StoreError) in
      try await store.submit(jobs, key: key, capacity: capacity)
    }
    switch outcome {
    case .accepted: return await accepted(jobs)
    case .repeated(let jobs): return repeated(jobs)
    case .keyReused: throw .keyReused
    case .queueFull(let places):
      if let admission { queue.gate.recordRefusal(of: admission, slots: places) }
      throw .queueFull
    case .recordsFull: throw .recordsFull
    case .imageGone: return nil
    }
  }

  /// Returns the right to ask the store; nil if no job needs a slot in the queue. A request with a key always asks the
  /// store, because it may repeat an accepted one.
  private func admission(
    for jobs: [Job], key: IdempotencyKey?, _ capacity: QueueCapacity
  ) throws(JobsError) -> QueueGate.Admission? {
    let places = jobs.count { $0.phase == .queued }
    guard places > 0, let owner = jobs.first?.owner else { return nil }
    let client = QueueGate.Client(owner, capacity)
    guard key == nil else { return queue.gate.admitAnyway(client) }
    guard let admission = queue.gate.admit(places, of: client) else { throw .queueFull }
    return admission
  }

  private func checkQueue(for jobs: Int, _ client: QueueGate.Client) throws(JobsError) {
    if queue.gate.isClosed(to: client, for: jobs) { throw .queueFull }
  }

  /// - Parameter ofBatch: whether the jobs are lines of a batch, which have a limit of their own.
  func capacity(for caller: Caller, ofBatch: Bool = false) -> QueueCapacity {
    QueueCapacity(
      ofBatch ? configuration.maxQueuedLines : configuration.maxQueued,
      ofOwner: caller.limits.maxQueued, recordBytes: configuration.maxRecordBytes)
  }

  private func repeated(_ jobs: [RememberedJob]) -> [SubmittedJob] {
    // The first request may have been interrupted after the store accepted the jobs and before the dispatcher was
    // signaled.
    if jobs.contains(where: \.isQueued) { queue.dispatcher.jobsWereQueued() }
    return jobs.map(remembered)
  }

  private func remembered(_ job: RememberedJob) -> SubmittedJob {
    switch job {
    case .gone(let id): return SubmittedJob(gone: id)
    case .kept(let job):
      guard isAlive(job), let snapshot = events.snapshots.publish(job, .read) else {
        return SubmittedJob(gone: job.id)
      }
      return SubmittedJob(snapshot)
    }
  }

  private func accepted(_ jobs: [Job]) async -> [SubmittedJob] {
    events.metrics.submitted(jobs.count)
    let submitted = jobs.map { job in
      let snapshot = events.publisher.publish(job, hasEnded: job.phase.isFinished)
      return snapshot.map { SubmittedJob($0) } ?? SubmittedJob(gone: job.id)
    }
    let queued = jobs.filter { $0.phase == .queued }
    guard !queued.isEmpty else { return submitted }
    queue.positions.add(queued)
    queue.origins.recordDemand(for: Set(queued.compactMap(\.origin)), by: queued[0].owner)
    await join(queued)
    queue.dispatcher.jobsWereQueued(by: queued[0].owner)
    return submitted
  }

  /// Adds new jobs to running loads of equal requests, so that they need no worker of their own. It adds at most as
  /// many jobs as are new, so that a long queue does not delay the response.
  private func join(_ jobs: [Job]) async {
    guard loading.loads.count > 0 else { return }
    var counts: [Fingerprint: Int] = [:]
    for request in jobs.lazy.compactMap(\.request) { counts[request, default: 0] += 1 }
    for (request, count) in counts { await join(request, count) }
  }

  func join(_ request: Fingerprint, _ count: Int) async {
    guard let load = loading.loads.load(for: request), load.beginCoalescing() else { return }
    await loading.coalescer.coalesce(into: load, atMost: count)
  }

  private func checkLocalNames(_ jobs: [NewJob]) async throws(JobsError) {
    var wrong: [Int] = []
    for (place, job) in jobs.enumerated() where await !isLocalName(of: job) { wrong.append(place) }
    if !wrong.isEmpty { throw .invalidLocalNames(wrong) }
  }

  /// Whether the job's local name is allowed: it is a file within the root, or does not exist.
  func isLocalName(of job: NewJob) async -> Bool {
    guard case .local(let name) = job.submission.source, let locals = parts.locals else {
      return true
    }
    do throws(LocalImageError) { _ = try await locals.open(name) } catch {
      return error != .outside && error != .notAFile
    }
    return true
  }

  /// Returns a staging file for an image that a client is about to upload.
  package func beginCapture(by owner: Owner) async throws(JobsError) -> any ImageCapture {
    try requireAccepting()
    try caching.storage.requireSpace()
    let staged = try await withStore { () async throws(StoreError) in try await parts.spool.stage()
    }
    return StagedCapture(
      staged, on: parts.threads.lane(at: .normal), in: caching.uploads, by: owner)
  }

  /// Accepts a job for an uploaded image, and makes the image durable with it. The source of `new` is the image that
  /// ``ImageCapture/finish()`` returned.
  package func submit(
    captured capture: any ImageCapture, as new: NewJob, by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> SubmittedJob {
    guard let capture = capture as? StagedCapture, let image = capture.image else {
      throw .store(.unavailable(detail: "the upload is not finished or belongs to another engine"))
    }
    let moment = now()
    let capacity = capacity(for: caller)
    // Checked before the image is stored.
    if key == nil { try checkQueue(for: 1, QueueGate.Client(caller.owner, capacity)) }
    let job = Job(new, id: ids.next(at: moment), owner: caller.owner, createdAt: moment)
    if new.submission.webhook != nil, try await !hasRoomForMessages(of: caller.owner) {
      guard let key else { throw .tooManyMessages }
      return try await repeated([job], key, or: .tooManyMessages)[0]
    }
    do throws(JobsError) {
      try await publish(capture.staged, image.digest, bytes: image.bytes, for: job.id)
      let submitted = try await submitPlain([job], key: key, capacity)[0]
      if submitted.id != job.id { await caching.keeper.release(job.id) }
      return submitted
    } catch {
      await caching.keeper.release(job.id)
      throw error
    }
  }

  private func publish(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, for id: JobID
  ) async throws(JobsError) {
    let isKept = try await withStore { () async throws(StoreError) in
      try await caching.keeper.save(
        staged, digest, bytes: bytes, as: id, limit: caching.keeper.limit + bytes)
    }
    guard isKept else { throw .store(.unavailable(detail: "the client disconnected")) }
  }
}

extension RememberedJob {
  fileprivate var isQueued: Bool {
    guard case .kept(let job) = self else { return false }
    return job.phase == .queued
  }
}

extension Job {
  init(
    _ new: NewJob, id: JobID, owner: Owner, createdAt: Timestamp, batch: BatchPosition? = nil
  ) {
    self.init(
      id: id, owner: owner, submission: new.submission, priority: new.priority, tags: new.tags,
      createdAt: createdAt, batch: batch)
  }
}

/// Answers jobs from the cache when they are submitted, so that they never wait in the queue.
extension JobEngine {
  /// Returns the jobs in the same order. A job that the cache can answer is returned finished; the others are unchanged.
  func answeringFromCache(_ jobs: [Job]) async -> [Job] {
    let moment = now()
    let asked = candidates(jobs)
    guard !asked.isEmpty else { return jobs }
    let answers = await caching.responses.answers(asked.map(\.job), at: moment)
    var jobs = jobs
    for (candidate, answer) in zip(asked, answers) where jobs[candidate.place].phase == .queued {
      guard case .use(let entry, let outcome, let isStale) = answer,
        fits(entry.image, candidate.job), await caching.responses.state(of: entry) == .complete
      else { continue }
      var image = entry.image.seen(as: candidate.job.target)
      if !candidate.job.submission.variants.isEmpty {
        guard let made = await storedVariants(for: candidate.job, of: entry.image) else { continue }
        image.variants = made
      }
      caching.responses.recordUse(of: entry, outcome.status, at: moment)
      if isStale { loading.background.addRefresh(of: candidate.job) }
      let retention = candidate.job.submission.retention ?? configuration.retention
      jobs[candidate.place].target = candidate.job.target
      jobs[candidate.place].succeedFromCache(
        with: image, outcome, at: moment, keptFor: retention)
    }
    return jobs
  }

  /// Returns the job's variants if all of them are stored; nil otherwise.
  private func storedVariants(for job: Job, of image: StoredImage) async -> [MadeVariant]? {
    guard job.submission.cacheMode != .noStore else { return nil }
    return await renditions.variants?.kept(
      job.submission.variants, of: image,
      apartFor: configuration.cache.isShared ? nil : job.owner)
  }

  /// Returns the cache lookups for these jobs. A low-data job has two: the regular image is preferred if it is stored.
  private func candidates(_ jobs: [Job]) -> [(place: Int, job: Job)] {
    jobs.enumerated().flatMap { place, job -> [(place: Int, job: Job)] in
      guard job.submission.mayUseStoredResponse else { return [] }
      guard job.target == .lowData else { return [(place, job)] }
      var regular = job
      regular.target = .regular
      return [(place, regular), (place, job)]
    }
  }

  private func fits(_ image: StoredImage, _ job: Job) -> Bool {
    let header = ImageHeader(
      format: image.description.format, width: image.description.width,
      height: image.description.height, decodingMemory: 0)
    let limits = JobLimits(of: job, within: loading.loads.rules)
    return limits.failure(bytes: image.bytes, header: header) == nil
  }
}

extension Submission {
  /// Whether a stored response may be used as the job's image at once.
  var mayUseStoredResponse: Bool {
    guard case .url = source, cacheMode.mayUseStoredResponse else { return false }
    // A job that drops its original stores its variants for itself alone, so it can't use an image of the cache. A job
    // with deliveries has to deliver before it can succeed.
    return !dropsOriginal && deliveries.isEmpty
  }
}

extension CacheMode {
  fileprivate var mayUseStoredResponse: Bool {
    switch self {
    case .default, .forceCache, .onlyIfCached: true
    case .noStore, .reload, .noCache: false
    }
  }
}

/// An upload into a staged image. Its bytes are hashed and written on threads that may block on the disk.
final class StagedCapture: ImageCapture {
  let staged: any StagedImage
  private let executor: any TaskExecutor
  private let quota: UploadQuota
  private let owner: Owner
  private let state = Mutex((bytes: 0, image: CapturedImage?.none))

  init(
    _ staged: any StagedImage, on executor: any TaskExecutor, in room: UploadQuota, by owner: Owner
  ) {
    self.staged = staged
    self.executor = executor
    (self.quota, self.owner) = (room, owner)
  }

  /// Releases the upload's quota. An accepted upload is counted as a stored image by then.
  deinit { quota.release(bytes, of: owner) }

  /// Bytes received so far.
  var bytes: Int { state.withLock { $0.bytes } }

  /// Nil until finished.
  var image: CapturedImage? { state.withLock { $0.image } }

  func write(_ bytes: [UInt8]) async throws(JobsError) {
    do throws(StoreError) { try quota.reserve(bytes.count, for: owner) } catch {
      throw .store(error)
    }
    state.withLock { $0.bytes += bytes.count }
    let staged = staged
    let failure = await Task(executorPreference: executor) { () -> StoreError? in
      do throws(StoreError) { try staged.write(bytes) } catch { return error }
      return nil
    }.value
    if let failure { throw .store(failure) }
  }

  func finish() async throws(JobsError) -> CapturedImage {
    let digest = staged.finish()
    return state.withLock { state in
      let image = CapturedImage(digest: digest, bytes: state.bytes)
      state.image = image
      return image
    }
  }
}
