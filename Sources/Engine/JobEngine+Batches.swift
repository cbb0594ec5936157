public import Jobs

/// Batches: lists of jobs, which the store keeps and counts. What comes with a list is queued by the thousand and published
/// to nobody: a job of it is known here once a worker takes it or somebody asks for it.
extension JobEngine {
  /// Begins a batch; lines may be added from then on.
  ///
  /// - Parameter key: the same key with the same request answers with the batch that the first one began.
  public func begin(
    _ new: NewBatch, by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> BegunBatch {
    try takeable()
    let moment = now()
    let refusal = try await refusal(of: caller, telling: new.webhook != nil, at: moment)
    // By its key it may be a repetition, which is answered whatever is refused.
    if let refusal, key == nil { throw refusal }
    let batch = Batch(
      id: ids.next(at: moment), owner: caller.owner, name: new.name, tags: new.tags,
      defaults: new.defaults, isOpen: new.isOpen, key: key?.key,
      retention: configuration.retention, webhook: new.webhook, content: new.content,
      createdAt: moment)
    let opening = try await storing { () async throws(StoreError) in
      try await store.open(batch, key: key, atMost: refusal == nil ? configuration.maxBatches : 0)
    }
    switch opening {
    case .opened: return .new(batch)
    case .keyReused: throw .keyReused
    case .tooMany: throw refusal ?? .tooManyBatches
    case .repeated(let id): return try await repeated(id, for: caller)
    }
  }

  /// A batch that is known by its key, which is kept for longer than the batch may be.
  private func repeated(_ id: BatchID, for caller: Caller) async throws(JobsError) -> BegunBatch {
    do throws(JobsError) { return .repeated(try await batch(id, for: caller)) } catch {
      guard error == .unknownBatch else { throw error }
      return .gone(id)
    }
  }

  /// Makes lines durable; their jobs run as they come.
  public func add(
    _ new: NewLines, to batch: Batch, by caller: Caller
  ) async throws(JobsError) -> Batch {
    try takeable()
    try storage.check()
    try dailyBytes.check(caller, at: now())
    let lines = await lines(new, of: batch)
    if lines.webhook != nil || lines.jobs.contains(where: { $0.submission.webhook != nil }) {
      try await checkMessages(of: batch.owner)
    }
    let capacity = capacity(for: caller, ofBatch: true)
    let addition = try await storing { () async throws(StoreError) in
      try await store.add(lines, to: batch.id, capacity: capacity)
    }
    switch addition {
    case .taken(let batch):
      metrics.submitted(lines.jobs.count)
      origins.want(Set(lines.jobs.compactMap(\.origin)), by: batch.owner)
      if !lines.jobs.isEmpty { dispatcher.jobsWereQueued(by: batch.owner) }
      return batch
    case .refused(let batch): throw .batchGoesOnElsewhere(batch)
    case .queueFull: throw .queueFull
    case .recordsFull: throw .recordsFull
    case .unknown: throw .unknownBatch
    }
  }

  private func lines(_ new: NewLines, of batch: Batch) async -> BatchLines {
    let moment = now()
    var (jobs, rejected): ([Job], [RejectedLine]) = ([], new.rejected)
    jobs.reserveCapacity(new.jobs.count)
    var shared: (given: SharedDefaults, spelled: SharedDefaults)?
    for line in new.jobs {
      guard await isLocalName(of: line.job) else {
        rejected.append(.outside(line.line))
        continue
      }
      var new = line.job
      if let given = new.submission.defaults {
        if shared?.given !== given { shared = (given, given.spelled(by: fetcher)) }
        new.submission.defaults = shared?.spelled
      }
      jobs.append(
        job(
          for: new, of: batch.owner, at: moment,
          batch: BatchPlace(id: batch.id, line: line.line)))
    }
    return BatchLines(
      after: new.offset, count: new.count, jobs: jobs, rejected: rejected, webhook: new.webhook,
      content: new.content)
  }

  /// Ends what a batch receives.
  public func close(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    _ = try await batch(id, for: caller)
    let batch = try await storing { () async throws(StoreError) in try await store.close(id) }
    return try checked(batch, caller)
  }

  /// Forgets a batch of which so many lines came, none of them a job; one that somebody has gone on with stays.
  public func abandon(_ id: BatchID, after lines: Int) async throws(JobsError) {
    try await storing { () async throws(StoreError) in
      try await store.abandon(id, after: lines)
    }
  }

  /// The batch as it is.
  public func batch(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    try checked(
      try await storing { () async throws(StoreError) in try await store.batch(id) }, caller)
  }

  private func checked(_ batch: Batch?, _ caller: Caller) throws(JobsError) -> Batch {
    guard let batch, caller.isAdmin || batch.owner == caller.owner,
      batch.expiresAt.map({ $0 > now() }) ?? true
    else { throw .unknownBatch }
    return batch
  }

  /// The batches that fit, newest first.
  public func batches(_ query: BatchQuery) async throws(JobsError) -> BatchPage {
    try await storing { () async throws(StoreError) in try await store.batches(query) }
  }

  /// What has become of lines of a batch that the caller has seen.
  public func results(_ query: ResultQuery) async throws(JobsError) -> BatchResults {
    let results = try await storing { () async throws(StoreError) in
      try await store.results(query)
    }
    guard let results else { throw .unknownBatch }
    return results
  }

  /// The batch once it is over, or has another revision than this, or the time is over.
  public func wait(
    _ id: BatchID, for caller: Caller, beyond revision: Int?, atMost limit: Duration
  ) async throws(JobsError) -> Batch {
    @Sendable func isThere(_ batch: Batch) -> Bool {
      revision.map { batch.revision != $0 } ?? batch.state.isOver
    }
    let batch = try await batch(id, for: caller)
    if isThere(batch) { return batch }
    let stream = follow(id)
    let changed = await withTaskGroup(of: Batch?.self) { group in
      group.addTask {
        for await batch in stream {
          guard let batch else { return nil }
          if isThere(batch) { return batch }
        }
        return nil
      }
      group.addTask {
        try? await Task.sleep(for: limit)
        return nil
      }
      defer { group.cancelAll() }
      return await group.next() ?? nil
    }
    return try await changed == nil ? self.batch(id, for: caller) : checked(changed, caller)
  }

  /// The batch as it is and as it becomes; nil, and the end, once there is none.
  public func follow(_ id: BatchID) -> AsyncStream<Batch?> { batchWatches.follow(id) }
}

extension RejectedLine {
  fileprivate static func outside(_ line: Int) -> RejectedLine {
    RejectedLine(
      line: line, url: nil, code: "invalid_local_name",
      detail: "Must name a file below sources.local_root.")
  }
}
