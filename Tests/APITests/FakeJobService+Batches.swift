import API
import Jobs
import TestSupport

/// Batches in memory. Tests change the phases of their jobs.
extension FakeJobService {
  func createBatch(
    _ new: NewBatch, by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> BegunBatch {
    try check()
    let batch = Batch(
      id: JobID(at: now()), owner: caller.owner, name: new.name, tags: new.tags,
      defaults: new.defaults,
      isOpen: new.isOpen, key: key?.key, retention: .seconds(60), webhook: new.webhook,
      content: new.content, createdAt: now())
    let opening = try await storing { () async throws(StoreError) in
      try await batchStore.open(batch, key: key)
    }
    switch opening {
    case .opened: return .new(batch)
    case .keyReused: throw .keyReused
    case .tooMany: throw .tooManyBatches
    case .repeated(let id):
      do throws(JobsError) { return .repeated(try await self.batch(id, for: caller)) } catch {
        guard error == .unknownBatch else { throw error }
        return .gone(id)
      }
    }
  }

  func add(_ new: NewLines, to batch: Batch, by caller: Caller) async throws(JobsError) -> Batch {
    try check()
    let bytes = new.jobs.map(\.job.keptBytes).reduce(0, +)
    with { $0.additions.append(bytes) }
    let jobs = new.jobs.map { line in
      with { $0.milliseconds += 1 }
      return Job(
        id: JobID(at: now()), owner: batch.owner, submission: line.job.submission,
        priority: line.job.priority, tags: line.job.tags, createdAt: now(),
        batch: BatchPosition(id: batch.id, line: line.line))
    }
    let lines = BatchLines(
      after: new.offset, count: new.count, jobs: jobs, rejected: new.rejected,
      webhook: new.webhook, content: new.content)
    let capacity = with { $0.capacity }
    let addition = try await storing { () async throws(StoreError) in
      try await batchStore.add(lines, to: batch.id, capacity: QueueCapacity(capacity))
    }
    switch addition {
    case .accepted(let batch):
      with { kept in for job in jobs { kept.jobs[job.id] = job } }
      return batch
    case .refused(let batch): throw .batchContinuesElsewhere(batch)
    case .queueFull: throw .queueFull
    case .recordsFull: throw .recordsFull
    case .unknown: throw .unknownBatch
    }
  }

  func close(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    _ = try await batch(id, for: caller)
    return try seen(
      try await storing { () async throws(StoreError) in try await batchStore.close(id) }, caller)
  }

  func deleteEmptyBatch(_ id: BatchID, after lines: Int) async throws(JobsError) {
    try await storing { () async throws(StoreError) in
      try await batchStore.deleteUnused(id, after: lines)
    }
  }

  func cancel(batch id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    _ = try await batch(id, for: caller)
    return try seen(
      try await storing { () async throws(StoreError) in try await batchStore.cancel(id) }, caller)
  }

  func purge(batch id: BatchID, refusedAfter lines: Int?, for caller: Caller)
    async throws(JobsError)
  {
    _ = try await batch(id, for: caller)
    _ = try await storing { () async throws(StoreError) in
      try await batchStore.purge(id, refusedAfter: lines)
    }
  }

  func retry(
    batch id: BatchID, codes: Set<FailureCode>, for caller: Caller
  ) async throws(JobsError) -> Batch {
    _ = try await batch(id, for: caller)
    let wanted = codes.isEmpty ? Set(FailureCode.allCases) : codes
    let moment = now()
    _ = try await storing { () async throws(StoreError) in
      try await batchStore.retry(RetryQuery(id, codes: wanted, count: 1_000)) {
        $0.fetchAgain(at: moment, from: .regular)
      }
    }
    return try await batch(id, for: caller)
  }

  func batch(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    try check()
    return try seen(
      try await storing { () async throws(StoreError) in try await batchStore.batch(id) }, caller)
  }

  private func seen(_ batch: Batch?, _ caller: Caller) throws(JobsError) -> Batch {
    guard let batch, caller.isAdmin || batch.owner == caller.owner else { throw .unknownBatch }
    return batch
  }

  func batches(_ query: BatchQuery) async throws(JobsError) -> BatchPage {
    try check()
    return try await storing { () async throws(StoreError) in try await batchStore.batches(query) }
  }

  func results(_ query: ResultQuery) async throws(JobsError) -> BatchResults {
    let results = try await storing { () async throws(StoreError) in
      try await batchStore.results(query)
    }
    guard let results else { throw .unknownBatch }
    return results
  }

  func messages(
    ofBatch id: BatchID, for caller: Caller
  ) async throws(JobsError) -> [WebhookMessage] {
    _ = try await batch(id, for: caller)
    return try await storing { () async throws(StoreError) in
      try await batchStore.messages(of: id)
    }
  }

  func resendWebhook(
    ofBatch id: BatchID, for caller: Caller
  ) async throws(JobsError) -> WebhookMessage? {
    _ = try await batch(id, for: caller)
    return try await storing { () async throws(StoreError) in
      try await batchStore.sendAgain(of: id)
    }
  }

  func follow(_ id: BatchID) -> AsyncStream<Batch?> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let looking = Task {
        var seen: Int?
        while !Task.isCancelled {
          let batch = try? await batchStore.batch(id)
          if batch == nil || batch?.revision != seen { continuation.yield(batch) }
          if batch == nil { return continuation.finish() }
          seen = batch?.revision
          try? await Task.sleep(for: .milliseconds(1))
        }
      }
      continuation.onTermination = { _ in looking.cancel() }
    }
  }

  func wait(
    _ id: BatchID, for caller: Caller, beyond revision: Int?, atMost limit: Duration
  ) async throws(JobsError) -> Batch {
    let deadline = ContinuousClock.now + limit
    while true {
      let batch = try await batch(id, for: caller)
      let isThere = revision.map { batch.revision != $0 } ?? batch.state.isOver
      if isThere || ContinuousClock.now >= deadline || Task.isCancelled { return batch }
      try? await Task.sleep(for: .milliseconds(1))
    }
  }

  private func storing<Value>(
    _ body: () async throws(StoreError) -> Value
  ) async throws(JobsError) -> Value {
    do throws(StoreError) { return try await body() } catch { throw .store(error) }
  }
}
