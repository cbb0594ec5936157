public import Jobs

/// What brings new jobs.
extension JobEngine {
  /// Accepts jobs, all or none; they survive a crash from then on.
  ///
  /// - Parameter key: the same key with the same request answers with the first request's jobs.
  public func submit(
    _ jobs: [NewJob], by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> [SubmittedJob] {
    try takeable()
    let moment = now()
    let tells = jobs.contains { $0.submission.webhook != nil }
    let refusal = try await refusal(of: caller, telling: tells, at: moment)
    if let refusal, key == nil { throw refusal }
    try await checkLocalNames(jobs)
    let capacity = capacity(for: caller)
    if key == nil {
      // What the cache may answer needs no place. All else is refused before anything is made of it.
      let certain = jobs.count { !cache.isOn || !$0.submission.takesStored }
      try checkQueue(for: certain, QueueGate.Client(caller.owner, capacity))
    }
    let queued = jobs.map { job(for: $0, of: caller.owner, at: moment) }
    if let refusal, let key { return try await repeated(queued, key, or: refusal) }
    if let submitted = try await submit(await answered(queued), key: key, capacity) {
      return submitted
    }
    return try await submitPlain(queued, key: key, capacity)
  }

  /// Why the caller's are not taken now, unless they were before; nil: they are.
  /// - Parameter tells: whether somebody is to be told of an end.
  func refusal(
    of caller: Caller, telling tells: Bool, at moment: Timestamp
  ) async throws(JobsError) -> JobsError? {
    if storage.isFull { return .store(.full) }
    if let refusal = dailyBytes.refusal(of: caller, at: moment) { return refusal }
    guard tells, try await !hasRoomForMessages(of: caller.owner) else { return nil }
    return .tooManyMessages
  }

  /// The jobs that their key stands for; where it is new they are refused. The store is asked as for any submission, but
  /// without a place for a queued job it takes none.
  private func repeated(
    _ queued: [Job], _ key: IdempotencyKey, or refusal: JobsError
  ) async throws(JobsError) -> [SubmittedJob] {
    let outcome = try await storing { () async throws(StoreError) in
      try await store.submit(queued, key: key, capacity: QueueCapacity(.max, ofOwner: 0))
    }
    switch outcome {
    case .repeated(let jobs): return repeated(jobs)
    case .keyReused: throw .keyReused
    case .accepted, .queueFull, .recordsFull, .imageGone: throw refusal
    }
  }

  /// A new job, which knows what it is to ask first and whom.
  func job(
    for new: NewJob, of owner: Owner, at moment: Timestamp, batch: BatchPlace? = nil
  ) -> Job {
    var new = new
    new.submission.spellHosts(by: fetcher)
    var job = Job(new, id: ids.next(at: moment), owner: owner, createdAt: moment, batch: batch)
    job.target = network.firstCandidate(of: job.submission)
    job.skipsCache = !cache.isOn
    return loads.rules.sharing(job)
  }

  /// Jobs that refer to no image which the cache has.
  private func submitPlain(
    _ jobs: [Job], key: IdempotencyKey?, _ capacity: QueueCapacity
  ) async throws(JobsError) -> [SubmittedJob] {
    guard let submitted = try await submit(jobs, key: key, capacity) else {
      throw .store(.unavailable(detail: "an image is missing that nobody asked for"))
    }
    return submitted
  }

  /// - Returns: nil when an image that the cache answered with went meanwhile: nothing was saved.
  private func submit(
    _ jobs: [Job], key: IdempotencyKey?, _ capacity: QueueCapacity
  ) async throws(JobsError) -> [SubmittedJob]? {
    try takeable()
    let admission = try admission(for: jobs, key: key, capacity)
    let outcome = try await storing { () async throws(StoreError) in
      try await store.submit(jobs, key: key, capacity: capacity)
    }
    switch outcome {
    case .accepted: return await accepted(jobs)
    case .repeated(let jobs): return repeated(jobs)
    case .keyReused: throw .keyReused
    case .queueFull(let places):
      if let admission { queueGate.close(to: admission, wanting: places) }
      throw .queueFull
    case .recordsFull: throw .recordsFull
    case .imageGone: return nil
    }
  }

  /// Leave to ask the store; nil where no job needs a place. What comes with a key is asked for whatever the queue holds:
  /// it may have been accepted before.
  private func admission(
    for jobs: [Job], key: IdempotencyKey?, _ capacity: QueueCapacity
  ) throws(JobsError) -> QueueGate.Admission? {
    let places = jobs.count { $0.phase == .queued }
    guard places > 0, let owner = jobs.first?.owner else { return nil }
    let client = QueueGate.Client(owner, capacity)
    guard key == nil else { return queueGate.admitAnyway(client) }
    guard let admission = queueGate.admit(places, of: client) else { throw .queueFull }
    return admission
  }

  private func checkQueue(for jobs: Int, _ client: QueueGate.Client) throws(JobsError) {
    if queueGate.isClosed(to: client, for: jobs) { throw .queueFull }
  }

  /// - Parameter ofBatch: whether it is of what batches have beside the queue.
  func capacity(for caller: Caller, ofBatch: Bool = false) -> QueueCapacity {
    QueueCapacity(
      ofBatch ? configuration.maxQueuedLines : configuration.maxQueued,
      ofOwner: caller.limits.maxQueued, recordBytes: configuration.maxRecordBytes)
  }

  private func repeated(_ jobs: [RememberedJob]) -> [SubmittedJob] {
    // The answer to the first request may have been lost before anybody was told of them.
    if jobs.contains(where: \.isQueued) { dispatcher.jobsWereQueued() }
    return jobs.map(remembered)
  }

  private func remembered(_ job: RememberedJob) -> SubmittedJob {
    switch job {
    case .gone(let id): return SubmittedJob(gone: id)
    case .kept(let job):
      guard isAlive(job), let snapshot = snapshots.publish(job, .read) else {
        return SubmittedJob(gone: job.id)
      }
      return SubmittedJob(snapshot)
    }
  }

  private func accepted(_ jobs: [Job]) async -> [SubmittedJob] {
    metrics.submitted(jobs.count)
    let submitted = jobs.map { job in
      let snapshot = publisher.publish(job, hasEnded: job.phase.isFinished)
      return snapshot.map { SubmittedJob($0) } ?? SubmittedJob(gone: job.id)
    }
    let queued = jobs.filter { $0.phase == .queued }
    guard !queued.isEmpty else { return submitted }
    positions.add(queued)
    origins.want(Set(queued.compactMap(\.origin)), by: queued[0].owner)
    await join(queued)
    dispatcher.jobsWereQueued(by: queued[0].owner)
    return submitted
  }

  /// Brings new jobs into loads under way that they ask the same as: they need no worker of their own. It brings no more
  /// jobs than are new, so that the answer to a submission doesn't wait for a long queue.
  private func join(_ jobs: [Job]) async {
    guard loads.count > 0 else { return }
    var counts: [Fingerprint: Int] = [:]
    for request in jobs.lazy.compactMap(\.request) { counts[request, default: 0] += 1 }
    for (request, count) in counts { await join(request, count) }
  }

  func join(_ request: Fingerprint, _ count: Int) async {
    guard let load = loads.load(for: request), load.beginCoalescing() else { return }
    await coalescer.coalesce(into: load, atMost: count)
  }

  private func checkLocalNames(_ jobs: [NewJob]) async throws(JobsError) {
    var wrong: [Int] = []
    for (place, job) in jobs.enumerated() where await !isLocalName(of: job) { wrong.append(place) }
    if !wrong.isEmpty { throw .invalidLocalNames(wrong) }
  }

  /// Whether a job that names a local image may: it leads to a file within the root, or to none.
  func isLocalName(of job: NewJob) async -> Bool {
    guard case .local(let name) = job.submission.source, let locals else { return true }
    do throws(LocalImageError) { _ = try await locals.open(name) } catch {
      return error != .outside && error != .notAFile
    }
    return true
  }

  /// Room for an image that a client is about to send.
  public func beginCapture(by owner: Owner) async throws(JobsError) -> any ImageCapture {
    try takeable()
    try storage.check()
    let staged = try await storing { () async throws(StoreError) in try await spool.stage() }
    return StagedCapture(
      staged, on: threads.lane(at: .normal), in: uploads, by: owner)
  }

  /// Accepts a job over a finished capture, and makes its bytes durable with it. `new`'s source is the captured image
  /// that ``ImageCapture/finish()`` returned.
  public func submit(
    captured capture: any ImageCapture, as new: NewJob, by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> SubmittedJob {
    guard let capture = capture as? StagedCapture, let image = capture.image else {
      throw .store(.unavailable(detail: "not a finished capture of this engine"))
    }
    let moment = now()
    let capacity = capacity(for: caller)
    // Before the image is kept for nothing.
    if key == nil { try checkQueue(for: 1, QueueGate.Client(caller.owner, capacity)) }
    let job = Job(new, id: ids.next(at: moment), owner: caller.owner, createdAt: moment)
    if new.submission.webhook != nil, try await !hasRoomForMessages(of: caller.owner) {
      guard let key else { throw .tooManyMessages }
      return try await repeated([job], key, or: .tooManyMessages)[0]
    }
    do throws(JobsError) {
      try await publish(capture.staged, image.digest, bytes: image.bytes, for: job.id)
      let submitted = try await submitPlain([job], key: key, capacity)[0]
      if submitted.id != job.id { await keeper.release(job.id) }
      return submitted
    } catch {
      await keeper.release(job.id)
      throw error
    }
  }

  private func publish(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, for id: JobID
  ) async throws(JobsError) {
    let isKept = try await storing { () async throws(StoreError) in
      try await keeper.keep(
        staged, digest, bytes: bytes, as: id, limit: keeper.limit + bytes)
    }
    guard isKept else { throw .store(.unavailable(detail: "the client left")) }
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
    _ new: NewJob, id: JobID, owner: Owner, createdAt: Timestamp, batch: BatchPlace? = nil
  ) {
    self.init(
      id: id, owner: owner, submission: new.submission, priority: new.priority, tags: new.tags,
      createdAt: createdAt, batch: batch)
  }
}
