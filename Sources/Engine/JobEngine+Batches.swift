package import Jobs

/// Batches: sets of jobs that the store keeps and counts. Their jobs are queued by the thousand and not published one
/// by one. This process knows a job of a batch once a worker claims it or a client reads it.
extension JobEngine {
  /// Creates a batch. Lines can be added from then on.
  ///
  /// - Parameter key: a repeated request with the same key returns the batch that the first one created.
  /// - Throws: `.keyReused` if the key was used with another request; `.tooManyBatches`.
  package func createBatch(
    _ new: NewBatch, by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> BegunBatch {
    try requireAccepting()
    let moment = now()
    let refusal = try await refusal(of: caller, withWebhook: new.webhook != nil, at: moment)
    // With a key it may be a repeated request, which is answered even when new batches are refused.
    if let refusal, key == nil { throw refusal }
    let batch = Batch(
      id: ids.next(at: moment), owner: caller.owner, name: new.name, tags: new.tags,
      defaults: new.defaults, isOpen: new.isOpen, key: key?.key,
      retention: configuration.retention, webhook: new.webhook, content: new.content,
      createdAt: moment)
    let opening = try await withStore { () async throws(StoreError) in
      try await store.open(batch, key: key, atMost: refusal == nil ? configuration.maxBatches : 0)
    }
    switch opening {
    case .opened: return .new(batch)
    case .keyReused: throw .keyReused
    case .tooMany: throw refusal ?? .tooManyBatches
    case .repeated(let id): return try await repeated(id, for: caller)
    }
  }

  /// Returns the batch of an earlier request with the same key. The key is stored for longer than the batch, so the
  /// batch may be gone.
  private func repeated(_ id: BatchID, for caller: Caller) async throws(JobsError) -> BegunBatch {
    do throws(JobsError) { return .repeated(try await batch(id, for: caller)) } catch {
      guard error == .unknownBatch else { throw error }
      return .gone(id)
    }
  }

  /// Stores lines of a batch. Their jobs may start at once, before later lines arrive.
  package func add(
    _ new: NewLines, to batch: Batch, by caller: Caller
  ) async throws(JobsError) -> Batch {
    try requireAccepting()
    try caching.storage.requireSpace()
    try queue.dailyBytes.check(caller, at: now())
    let lines = await lines(new, of: batch)
    if lines.webhook != nil || lines.jobs.contains(where: { $0.submission.webhook != nil }) {
      try await checkMessages(of: batch.owner)
    }
    let capacity = capacity(for: caller, ofBatch: true)
    let addition = try await withStore { () async throws(StoreError) in
      try await store.add(lines, to: batch.id, capacity: capacity)
    }
    switch addition {
    case .accepted(let batch):
      events.metrics.submitted(lines.jobs.count)
      queue.origins.recordDemand(for: Set(lines.jobs.compactMap(\.origin)), by: batch.owner)
      if !lines.jobs.isEmpty { queue.dispatcher.jobsWereQueued(by: batch.owner) }
      return batch
    case .refused(let batch): throw .batchContinuesElsewhere(batch)
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
        if shared?.given !== given { shared = (given, given.spelled(by: parts.fetcher)) }
        new.submission.defaults = shared?.spelled
      }
      jobs.append(
        job(
          for: new, of: batch.owner, at: moment,
          batch: BatchPosition(id: batch.id, line: line.line)))
    }
    return BatchLines(
      after: new.offset, count: new.count, jobs: jobs, rejected: rejected, webhook: new.webhook,
      content: new.content)
  }

  /// Closes a batch: no more lines can be added.
  package func close(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    _ = try await batch(id, for: caller)
    let batch = try await withStore { () async throws(StoreError) in try await store.close(id) }
    return try checked(batch, caller)
  }

  /// Deletes a batch that received `lines` lines, none of them a valid job. Does nothing if more lines were
  /// received meanwhile.
  package func deleteEmptyBatch(_ id: BatchID, after lines: Int) async throws(JobsError) {
    try await withStore { () async throws(StoreError) in
      try await store.deleteUnused(id, after: lines)
    }
  }

  /// Returns the batch as it is now.
  package func batch(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    try checked(
      try await withStore { () async throws(StoreError) in try await store.batch(id) }, caller)
  }

  private func checked(_ batch: Batch?, _ caller: Caller) throws(JobsError) -> Batch {
    guard let batch, caller.isAdmin || batch.owner == caller.owner,
      batch.expiresAt.map({ $0 > now() }) ?? true
    else { throw .unknownBatch }
    return batch
  }

  /// Returns the batches that match the query, newest first.
  package func batches(_ query: BatchQuery) async throws(JobsError) -> BatchPage {
    try await withStore { () async throws(StoreError) in try await store.batches(query) }
  }

  /// Returns the results of lines of a batch. The caller has checked that the client may see the batch.
  package func results(_ query: ResultQuery) async throws(JobsError) -> BatchResults {
    let results = try await withStore { () async throws(StoreError) in
      try await store.results(query)
    }
    guard let results else { throw .unknownBatch }
    return results
  }

  /// Returns the batch once its revision differs from `revision` (nil: once the batch is over), or once `limit` has
  /// passed.
  package func wait(
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

  /// Returns a stream of the batch's state now and after each change. Yields nil and ends once the batch is deleted.
  package func follow(_ id: BatchID) -> AsyncStream<Batch?> { events.batchWatches.follow(id) }
}

extension RejectedLine {
  fileprivate static func outside(_ line: Int) -> RejectedLine {
    RejectedLine(
      line: line, url: nil, code: "invalid_local_name",
      detail: "Must name a file below sources.local_root.")
  }
}
