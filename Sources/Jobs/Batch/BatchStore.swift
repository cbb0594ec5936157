/// Stores batches and their lines.
///
/// A change is durable when its function returns. A returned batch includes all committed changes of its
/// jobs.
package protocol BatchStore: Sendable {
  /// Saves a new batch.
  /// - Parameters:
  ///   - key: The client's idempotency key. The key's age is counted from the batch's `createdAt`.
  ///   - limit: The approximate maximum of unfinished batches of the owner, including this one.
  func open(
    _ batch: Batch, key: IdempotencyKey?, atMost limit: Int
  ) async throws(StoreError) -> BatchOpening

  /// Saves lines that follow the lines already received: all of them or none. Valid lines become queued jobs.
  ///
  /// - Parameter capacity: The approximate number of batch jobs that may be queued.
  func add(_ lines: BatchLines, to id: BatchID, capacity: QueueCapacity) async throws(StoreError)
    -> BatchAddition

  /// Ends the receiving of lines.
  /// - Returns: The updated batch; nil if there is no such batch.
  func close(_ id: BatchID) async throws(StoreError) -> Batch?

  /// Deletes a batch and its key if it still has exactly `lines` lines, none of them a job. A batch that a
  /// later request continued stays.
  func deleteUnused(_ id: BatchID, after lines: Int) async throws(StoreError)

  /// Cancels the batch. Its queued jobs are no longer claimed; ``endStoppedJobs(_:keptFor:deleting:)`` cancels
  /// them.
  /// - Returns: The updated batch; nil if there is no such batch.
  func cancel(_ id: BatchID) async throws(StoreError) -> Batch?

  /// Marks the batch as purged, which hides it from clients. ``endStoppedJobs(_:keptFor:deleting:)`` deletes
  /// its jobs and then the batch.
  ///
  /// - Parameter lines: The number of lines after which the first request was refused. Its key is then
  ///   deleted at once, so that the client can repeat the request and gets a new batch. The batch stays if
  ///   more lines arrived or it was closed meanwhile. Nil purges the batch in any state and keeps the key.
  /// - Returns: Whether this call purged the batch; false if there is no such batch.
  func purge(_ id: BatchID, refusedAfter lines: Int?) async throws(StoreError) -> Bool

  /// Ends up to `count` jobs of cancelled or purged batches. Jobs that are loading are left to their workers.
  /// Jobs of cancelled batches come first. A call also deletes at most some thousand rejected lines of purged
  /// batches, and deletes the batch with its last line.
  ///
  /// - Parameters:
  ///   - retention: How long a cancelled job is kept if it does not say so itself.
  ///   - cached: Returns the cache entries of a job that is deleted. They are deleted in the same
  ///     transaction, because they cannot be found once the job is gone.
  func endStoppedJobs(
    _ count: Int, keptFor retention: Duration,
    deleting cached: @escaping @Sendable (Job) -> CachedImage?
  ) async throws(StoreError) -> StoppedBatchJobs

  /// Closes batches that received nothing for `idle`, and deletes batches whose `expiresAt` has passed, up to
  /// `count`.
  /// - Returns: The number of batches. Also `count` if a large number of rejected lines made the call stop
  ///   earlier.
  func closeAndExpireBatches(idleFor idle: Duration, _ count: Int) async throws(StoreError) -> Int

  /// Marks batches as finished whose last jobs ended through this process. Needed for stores that do not do
  /// this in the transaction that ends the job. ``closeAndExpireBatches(idleFor:_:)`` finds the batches that this
  /// misses.
  /// - Returns: Whether the call created webhook messages about finished batches.
  func finishBatches() async throws(StoreError) -> Bool

  /// Changes failed jobs of a batch in line order, and saves each change like
  /// ``JobRecords/update(_:within:_:)``. Stops at the first job that finds the queue full; jobs before it
  /// stay queued.
  /// - Returns: Nil if there is no such batch.
  func retry(_ query: RetryQuery, _ change: @escaping @Sendable (inout Job) -> Bool)
    async throws(StoreError) -> BatchRetry?

  /// Returns the batch; nil if there is none or if it is purged.
  func batch(_ id: BatchID) async throws(StoreError) -> Batch?

  /// Returns the batches that match the query, newest first.
  func batches(_ query: BatchQuery) async throws(StoreError) -> BatchPage

  /// Returns the results of a range of lines, in line order; nil if there is no such batch.
  func results(_ query: ResultQuery) async throws(StoreError) -> BatchResults?
}

/// The result of creating a batch.
package enum BatchOpening: Sendable, Equatable {
  /// The batch was saved.
  case opened
  /// An earlier request with the same key and the same content created this batch.
  case repeated(BatchID)
  /// An earlier request with other content used the key.
  case keyReused
  /// The owner has reached the limit of unfinished batches.
  case tooMany
}

/// The result of adding lines to a batch.
package enum BatchAddition: Sendable, Equatable {
  /// The lines are durable. The value is the updated batch.
  case accepted(Batch)
  /// The batch receives no more lines, or continues at another line. The value is the batch as it is.
  case refused(Batch)
  /// The limit of queued batch jobs is reached.
  case queueFull
  /// The limit of stored job records is reached (``SubmitOutcome/recordsFull``).
  case recordsFull
  case unknown
}

/// Jobs that ended because their batch was cancelled or purged.
package struct StoppedBatchJobs: Sendable, Equatable {
  /// All cancelled or purged batches with unfinished work, including batches that this call did not touch.
  /// Some of their jobs may be loading.
  package var batches: [BatchID] = []
  /// Jobs that are now `cancelled`.
  package var cancelled: [Job] = []
  /// Deleted jobs, as they were before.
  package var removed: [Job] = []
  /// Whether more jobs, or rejected lines of purged batches, are left.
  package var isMore = false

  package init() {}

  package var count: Int { cancelled.count + removed.count }
}

/// Selects failed jobs of a batch.
package struct RetryQuery: Sendable, Equatable {
  package let batch: BatchID
  /// The failure codes of the jobs to select.
  package let codes: Set<FailureCode>
  /// Only lines after this line number.
  package var after = 0
  /// The maximum number of jobs.
  package let count: Int
  /// The limit of queued batch jobs.
  package let capacity: QueueCapacity

  package init(
    _ batch: BatchID, codes: Set<FailureCode>, count: Int, within capacity: QueueCapacity = .max
  ) {
    (self.batch, self.codes, self.count) = (batch, codes, count)
    self.capacity = capacity
  }
}

/// Failed jobs of a batch that were changed.
package struct BatchRetry: Sendable, Equatable {
  /// The jobs after the change.
  package var jobs: [Job] = []
  /// The line number to continue after; nil if no line is left.
  package var next: Int?
  /// Whether the queue was full before the next job. That job and those after it are unchanged.
  package var isQueueFull = false

  package init(next: Int?) { self.next = next }
}

/// Consecutive lines of an upload.
package struct BatchLines: Sendable {
  /// The number of lines before these.
  package let offset: Int
  /// The number of lines, including lines that are neither jobs nor rejected.
  package var count = 0
  /// The lines that are jobs, each with its ``Job/batch``.
  package var jobs: [Job] = []
  /// The lines that are not valid jobs.
  package var rejected: [RejectedLine] = []
  /// The webhook of the batch, if these lines set it.
  package let webhook: Webhook?
  /// ``Batch/content`` after these lines; nil if they do not change it.
  package let content: BatchContent?

  package init(
    after offset: Int, count: Int = 0, jobs: [Job] = [], rejected: [RejectedLine] = [],
    webhook: Webhook? = nil, content: BatchContent? = nil
  ) {
    (self.offset, self.count, self.jobs, self.rejected) = (offset, count, jobs, rejected)
    (self.webhook, self.content) = (webhook, content)
  }
}

/// Selects batches.
package struct BatchQuery: Sendable, Equatable {
  /// Nil selects the batches of all owners.
  package var owner: Owner?
  /// Empty selects all states.
  package var states: Set<Batch.State> = []
  /// Only batches older than this one.
  package var before: BatchID?
  /// Only batches that expire after this moment.
  package var now: Timestamp
  /// The maximum number of batches.
  package var limit: Int

  package init(owner: Owner?, now: Timestamp, limit: Int) {
    (self.owner, self.now, self.limit) = (owner, now, limit)
  }
}

/// One page of batches.
package struct BatchPage: Sendable, Equatable {
  /// Newest first.
  package var batches: [Batch]
  /// Whether older batches follow.
  package var hasMore: Bool
  /// The last batch that was scanned, if it is not on the page.
  package var last: BatchID?

  package init(batches: [Batch], hasMore: Bool, last: BatchID? = nil) {
    (self.batches, self.hasMore, self.last) = (batches, hasMore, last)
  }
}

/// Selects the lines whose results are read.
package struct ResultQuery: Sendable, Equatable {
  package let batch: BatchID
  /// Only lines after this line number.
  package var after: Int
  /// The last line number to read.
  package var through: Int
  /// Only jobs that ended in these phases; empty selects all phases in which a job can end.
  package var phases: Set<Phase> = []
  /// Whether rejected lines are included.
  package var withRejected = true
  /// Whether the results stop before the first job that has not ended.
  package var isInOrder = false
  /// Approximate limit, in bytes, for the records of jobs and for those of rejected lines, each. The results
  /// end with the line that reaches it.
  package var maxBytes = 256 << 10

  package init(_ batch: BatchID, after: Int, through: Int) {
    (self.batch, self.after, self.through) = (batch, after, through)
  }

  /// Whether the result includes jobs in this phase.
  package func includes(_ phase: Phase) -> Bool {
    phase.isFinished && (phases.isEmpty || phases.contains(phase))
  }
}

/// The results of a range of lines.
package struct BatchResults: Sendable, Equatable {
  /// The result of one line.
  package enum Line: Sendable, Equatable {
    /// A job that has ended.
    case job(Job, line: Int)
    /// A line that is not a valid job.
    case rejected(RejectedLine)

    /// The line number.
    package var number: Int {
      switch self {
      case .job(_, let line): line
      case .rejected(let line): line.line
      }
    }
  }

  /// In line order.
  package var lines: [Line]
  /// The results are complete up to this line number: the end of the range, the line that reached
  /// ``ResultQuery/maxBytes``, or the line before the first job that has not ended.
  package var through: Int

  package init(lines: [Line], through: Int) { (self.lines, self.through) = (lines, through) }
}
