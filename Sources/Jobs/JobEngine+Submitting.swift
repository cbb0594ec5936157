/// What brings new jobs.
extension JobEngine {
  /// Accepts jobs, all or none; they survive a crash from then on.
  ///
  /// - Parameter key: the same key with the same request answers with the first request's jobs.
  public func submit(
    _ jobs: [NewJob], by owner: Owner, key: IdempotencyKey?
  ) async throws(JobsError) -> [JobSnapshot] {
    try takeable()
    try await checkLocalNames(jobs)
    let moment = crew.now()
    let queued = jobs.map { new in
      var job = Job(new, id: crew.ids.next(at: moment), owner: owner, createdAt: moment)
      job.target = crew.network.firstTarget(of: job.submission)
      return job
    }
    if let snapshots = try await submit(await answered(queued), key: key) { return snapshots }
    return try await submitPlain(queued, key: key)
  }

  /// Jobs that refer to no image which the cache has.
  private func submitPlain(
    _ jobs: [Job], key: IdempotencyKey?
  ) async throws(JobsError) -> [JobSnapshot] {
    guard let snapshots = try await submit(jobs, key: key) else {
      throw .store(.unavailable(detail: "an image is missing that nobody asked for"))
    }
    return snapshots
  }

  /// - Returns: nil when an image that the cache answered with went meanwhile: nothing was saved.
  private func submit(
    _ jobs: [Job], key: IdempotencyKey?
  ) async throws(JobsError) -> [JobSnapshot]? {
    try takeable()
    let capacity = crew.configuration.maxQueued
    let outcome = try await storing { () async throws(StoreError) in
      try await crew.store.submit(jobs, key: key, capacity: capacity)
    }
    switch outcome {
    case .accepted: return await accepted(jobs)
    case .repeated(let jobs): return jobs.compactMap { crew.board.publish($0, isNews: false) }
    case .keyReused: throw .keyReused
    case .queueFull: throw .queueFull
    case .imageGone: return nil
    }
  }

  private func accepted(_ jobs: [Job]) async -> [JobSnapshot] {
    crew.metrics.submitted(jobs.count)
    let snapshots = jobs.compactMap { crew.board.publish($0) }
    for job in jobs where job.phase.isFinished { Settling(crew: crew).tell(job) }
    let queued = jobs.filter { $0.phase == .queued }
    guard !queued.isEmpty else { return snapshots }
    // What asks the same as a load under way needs no turn of its own.
    for request in Set(queued.compactMap(\.request)) where crew.loads.loads(request) {
      await crew.gather(request)
    }
    crew.dispatcher.wake()
    return snapshots
  }

  private func checkLocalNames(_ jobs: [NewJob]) async throws(JobsError) {
    var wrong: [Int] = []
    for (place, job) in jobs.enumerated() {
      guard case .local(let name) = job.submission.source, let locals = crew.locals else {
        continue
      }
      do throws(LocalImageError) { _ = try await locals.open(name) } catch {
        if error == .outside || error == .notAFile { wrong.append(place) }
      }
    }
    if !wrong.isEmpty { throw .invalidLocalNames(wrong) }
  }

  /// Room for an image that a client is about to send.
  public func beginCapture() async throws(JobsError) -> any ImageCapture {
    try takeable()
    let staged = try await storing { () async throws(StoreError) in try await crew.images.stage() }
    return StagedCapture(staged, on: crew.threads.lane(at: .normal))
  }

  /// Accepts a job over a finished capture, and makes its bytes durable with it. `new`'s source is the captured image
  /// that ``ImageCapture/finish()`` told.
  public func submit(
    captured capture: any ImageCapture, as new: NewJob, by owner: Owner, key: IdempotencyKey?
  ) async throws(JobsError) -> JobSnapshot {
    guard let capture = capture as? StagedCapture, let image = capture.image else {
      throw .store(.unavailable(detail: "not a finished capture of this engine"))
    }
    let moment = crew.now()
    let job = Job(new, id: crew.ids.next(at: moment), owner: owner, createdAt: moment)
    do throws(JobsError) {
      try await publish(capture.staged, image.digest, bytes: image.bytes, for: job.id)
      let snapshot = try await submitPlain([job], key: key)[0]
      if snapshot.job.id != job.id { try? await crew.store.release(job.id) }
      return snapshot
    } catch {
      try? await crew.store.release(job.id)
      throw error
    }
  }

  private func publish(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, for id: JobID
  ) async throws(JobsError) {
    let isKept = try await storing { () async throws(StoreError) in
      try await crew.keeper.keep(
        staged, digest, bytes: bytes, as: id, limit: crew.configuration.maxStoredBytes)
    }
    guard isKept else { throw .store(.unavailable(detail: "the client left")) }
  }
}

extension Job {
  init(_ new: NewJob, id: JobID, owner: Owner, createdAt: Timestamp) {
    self.init(
      id: id, owner: owner, submission: new.submission, priority: new.priority, tags: new.tags,
      createdAt: createdAt)
  }
}
