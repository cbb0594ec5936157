package import Jobs

extension BatchStore {
  /// The limits of other owners do not apply.
  package func open(
    _ batch: Batch, key: IdempotencyKey?
  ) async throws(StoreError) -> BatchOpening {
    try await open(batch, key: key, atMost: .max)
  }

  /// The idempotency key remains valid for the batch.
  package func purge(_ id: BatchID) async throws(StoreError) -> Bool {
    try await purge(id, refusedAfter: nil)
  }

  /// Whatever the cache has of them.
  package func endStopped(
    _ count: Int, keptFor retention: Duration
  ) async throws(StoreError) -> StoppedBatchJobs {
    try await endStoppedJobs(count, keptFor: retention) { _ in nil }
  }
}

/// Batches. Their jobs are counted when they are read.
extension MemoryJobStore: BatchStore {
  package func open(
    _ batch: Batch, key: IdempotencyKey?, atMost limit: Int
  ) async throws(StoreError) -> BatchOpening {
    try await mayFail()
    let name = key.map { "\($0.owner.name)\n\($0.key)" }
    if let name, let known = keys[name] {
      return known.fingerprint == key?.fingerprint ? .repeated(known.jobs[0]) : .keyReused
    }
    countBatches()
    let others = batches.values.count { $0.owner == batch.owner && $0.finishedAt == nil }
    guard others < limit else { return .tooMany }
    if let name, let key { keys[name] = (key.fingerprint, batch.createdAt, [batch.id]) }
    batches[batch.id] = batch
    return .opened
  }

  package func add(
    _ lines: BatchLines, to id: BatchID, capacity: QueueCapacity
  ) async throws(StoreError) -> BatchAddition {
    try await mayFail()
    guard var batch = counted(id) else { return .unknown }
    guard batch.state == .receiving, batch.received == lines.offset else { return .refused(batch) }
    guard
      lines.jobs.isEmpty
        || hasRoom(
          for: lines.jobs.count, of: batch.owner, ofBatch: true, within: capacity, at: now)
    else { return .queueFull }
    for job in lines.jobs { append(job) }
    rejectedLines[id, default: []] += lines.rejected
    batch.addLines(lines, at: now)
    batches[id] = batch
    return .accepted(counted(id) ?? batch)
  }

  package func close(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await mayFail()
    return change(id) { $0.close(at: now) }
  }

  package func deleteUnused(_ id: BatchID, after lines: Int) async throws(StoreError) {
    try await mayFail()
    guard let batch = counted(id), batch.isUnused(after: lines) else { return }
    batches[id] = nil
    forgetKey(of: batch)
  }

  private func forgetKey(of batch: Batch) {
    let name = batch.key.map { "\(batch.owner.name)\n\($0)" }
    if let name, keys[name]?.jobs == [batch.id] { keys[name] = nil }
  }

  package func cancel(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await mayFail()
    return change(id) { $0.cancel(at: now) }
  }

  package func purge(_ id: BatchID, refusedAfter lines: Int?) async throws(StoreError) -> Bool {
    try await mayFail()
    guard let batch = change(id, { $0.purge(refusedAfter: lines) }), batch.isPurged
    else { return false }
    forgetMessages(of: id, waiting: true)
    if lines != nil { forgetKey(of: batch) }
    return true
  }

  package func finishBatches() async throws(StoreError) -> Bool {
    try await mayFail()
    countBatches()
    defer { isBatchTold = false }
    return isBatchTold
  }

  package func endStoppedJobs(
    _ count: Int, keptFor retention: Duration,
    deleting cached: @escaping @Sendable (Job) -> CachedImage?
  ) async throws(StoreError) -> StoppedBatchJobs {
    try await mayFail(.endStopped)
    var ends = StoppedBatchJobs()
    for id in batches.keys { _ = counted(id) }
    let stopped = batches.values.filter(\.isCancelling).sorted { !$0.isPurged && $1.isPurged }
    for batch in stopped where ends.count < count {
      let jobs = rows.values.map(\.job).filter {
        $0.batch?.id == batch.id && (batch.isPurged ? $0.phase != .loading : $0.phase == .queued)
      }
      for var job in jobs.sorted(by: { $0.id < $1.id }).prefix(count - ends.count) {
        if batch.isPurged {
          rows[job.id] = nil
          forgetMessages(of: job.id, waiting: true)
          if let image = cached(job) { drop(image) }
          ends.removed.append(job)
        } else {
          let before = job
          _ = job.cancel(at: now, keptFor: job.submission.retention ?? retention)
          witnessed(before, job)
          rows[job.id]?.job = job
          ends.cancelled.append(job)
        }
      }
      let isAny = rows.values.contains { $0.job.batch?.id == batch.id }
      if batch.isPurged, !isAny { forget(batch.id) }
    }
    ends.batches = batches.values.filter(\.isCancelling).map(\.id)
    ends.isMore = ends.count >= count
    return ends
  }

  package func closeAndExpireBatches(idleFor idle: Duration, _ count: Int) async throws(StoreError)
    -> Int
  {
    try await mayFail()
    var tidied = 0
    for batch in batches.keys.compactMap(counted) {
      if batch.state == .receiving, batch.receivedAt + idle < now {
        _ = change(batch.id) { $0.close(at: now) }
        tidied += 1
      } else if batch.state.isOver, !batch.isCancelling, let end = batch.expiresAt, end <= now,
        !rows.values.contains(where: { $0.job.batch?.id == batch.id })
      {
        forget(batch.id)
        tidied += 1
      }
    }
    return tidied
  }

  private func forget(_ id: BatchID) {
    (batches[id], rejectedLines[id], countedMembers[id]) = (nil, nil, nil)
    forgetMessages(of: id, waiting: false)
  }

  package func retry(
    _ query: RetryQuery, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> BatchRetry? {
    try await mayFail()
    guard counted(query.batch) != nil else { return nil }
    let failed = rows.values.map(\.job).filter { job in
      job.batch?.id == query.batch && job.batch!.line > query.after
        && job.failure.map { query.codes.contains($0.code) } == true
    }.sorted { $0.batch!.line < $1.batch!.line }.prefix(query.count)
    var retry = BatchRetry(next: failed.count < query.count ? nil : failed.last?.batch?.line)
    for job in failed {
      switch try make(change, to: job.id, within: query.capacity) {
      case .updated(let after): if after != job { retry.jobs.append(after) }
      case .queueFull: retry.isQueueFull = true
      case .unknown: break
      }
      if retry.isQueueFull { break }
    }
    return retry
  }

  package func batch(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await mayFail()
    looksAtBatches += 1
    return counted(id)
  }

  package func batches(_ query: BatchQuery) async throws(StoreError) -> BatchPage {
    try await mayFail()
    let fitting = batches.keys.compactMap(counted).filter { batch in
      (query.owner == nil || batch.owner == query.owner)
        && (query.states.isEmpty || query.states.contains(batch.state))
        && (query.before == nil || batch.id < query.before!)
        && (batch.expiresAt == nil || batch.expiresAt! > query.now)
    }.sorted { $0.id > $1.id }
    return BatchPage(
      batches: Array(fitting.prefix(query.limit)), hasMore: fitting.count > query.limit)
  }

  package func results(_ query: ResultQuery) async throws(StoreError) -> BatchResults? {
    try await mayFail()
    guard let batch = counted(query.batch) else { return nil }
    var through = min(query.through, batch.received)
    let jobs = rows.values.map(\.job).filter { job in
      job.batch?.id == query.batch && job.batch!.line > query.after && job.batch!.line <= through
    }.sorted { $0.batch!.line < $1.batch!.line }
    if query.isInOrder, let first = jobs.first(where: { !$0.phase.isFinished }) {
      through = first.batch!.line - 1
    }
    var lines = jobs.filter { query.includes($0.phase) }
      .map { BatchResults.Line.job($0, line: $0.batch!.line) }
    if query.withRejected {
      lines += rejectedLines[query.batch, default: []].filter { $0.line > query.after }
        .map { .rejected($0) }
    }
    lines = lines.filter { $0.number <= through }.sorted { $0.number < $1.number }
    var (told, bytes): ([BatchResults.Line], Int) = ([], 0)
    for line in lines where bytes < query.maxBytes {
      told.append(line)
      // The approximate size of a record in the other stores.
      switch line {
      case .job(let job, _): bytes += 256 + job.textBytes
      case .rejected(let line): bytes += line.keptBytes
      }
      if bytes >= query.maxBytes { through = line.number }
    }
    return BatchResults(lines: told, through: through)
  }

  func change(_ id: BatchID, _ change: (inout Batch) -> Bool) -> Batch? {
    guard var batch = counted(id) else { return nil }
    let wasOver = batch.finishedAt != nil
    if change(&batch) { keep(batch, wasOver: wasOver) }
    return batch
  }

  private func keep(_ batch: Batch, wasOver: Bool) {
    batches[batch.id] = batch
    guard let message = WebhookMessage(endOf: batch, wasOver: wasOver) else { return }
    enqueueMessage(message)
    isBatchTold = true
  }

  /// Updates the counts of all batches.
  func countBatches() { for id in batches.keys { _ = counted(id) } }

  /// Returns the batch with the current counts of its jobs.
  func counted(_ id: BatchID) -> Batch? {
    guard var batch = batches[id], !batch.isPurged else { return nil }
    var change = BatchChange()
    let before = countedMembers[id, default: [:]]
    var after: [JobID: BatchChange.Member] = [:]
    for row in rows.values where row.job.batch?.id == id {
      after[row.job.id] = BatchChange.Member(row.job)
    }
    for (job, member) in after where before[job] != member {
      change.recordChange(from: before[job], to: member)
    }
    for (job, member) in before where after[job] == nil {
      change.recordChange(from: member, to: nil)
    }
    countedMembers[id] = after
    guard change != BatchChange() else { return batch }
    let wasOver = batch.finishedAt != nil
    batch.applyChange(change, at: batch.receivedAt)
    keep(batch, wasOver: wasOver)
    return batch
  }
}
