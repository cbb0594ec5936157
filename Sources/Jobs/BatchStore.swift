/// Batches, and which lines of them are jobs. What changes something is durable when it returns; a batch is told as the
/// last transaction that changed one of its jobs left it.
public protocol BatchStore: Sendable {
  /// Keeps a new batch.
  /// - Parameters:
  ///   - key: the client's idempotency key. It is known as of the batch's `createdAt`, as that of jobs is.
  ///   - limit: how many of the owner's batches may not be over, this one included, about.
  func open(
    _ batch: Batch, key: IdempotencyKey?, atMost limit: Int
  ) async throws(StoreError) -> BatchOpening

  /// Keeps lines that follow those which are there, all of them or none: their jobs, queued, and those that were
  /// rejected.
  ///
  /// - Parameter capacity: how many jobs of batches may be queued, about.
  func add(_ lines: BatchLines, to id: BatchID, capacity: QueueCapacity) async throws(StoreError)
    -> BatchAddition

  /// Has no more lines come.
  /// - Returns: the batch as it then is; nil: there is none.
  func close(_ id: BatchID) async throws(StoreError) -> Batch?

  /// Forgets a batch of which so many lines came, none of them a job, and its key; one that somebody has gone on with stays.
  func abandon(_ id: BatchID, after lines: Int) async throws(StoreError)

  /// Cancels the batch: none of its jobs is handed over from then on, and ``endStopped(_:keptFor:forgetting:)`` ends them.
  /// - Returns: the batch as it then is; nil: there is none.
  func cancel(_ id: BatchID) async throws(StoreError) -> Batch?

  /// Has the batch be as good as gone; ``endStopped(_:keptFor:forgetting:)`` forgets its jobs, and then itself.
  ///
  /// - Parameter lines: how many came of it, where its beginning was refused: its key is forgotten at once, as who sends it
  ///   again begins another one, unless more came or it was closed meanwhile. Nil: whatever came, and its key goes on
  ///   standing for it.
  /// - Returns: whether it is gone by this; false where there is none, too.
  func purge(_ id: BatchID, refusedAfter lines: Int?) async throws(StoreError) -> Bool

  /// Ends up to `count` jobs of batches that were cancelled or purged, but for those that are loading: whoever works on them
  /// ends them. Purged batches get what cancelled ones leave of `count`; of rejected lines some thousand go at a time, and the
  /// batch with the last of them.
  ///
  /// - Parameters:
  ///   - retention: how long one is kept that doesn't say itself.
  ///   - cached: what the cache may have of one that is forgotten. It goes in the same step: once the job is gone nobody
  ///     knows of it.
  func endStopped(
    _ count: Int, keptFor retention: Duration,
    forgetting cached: @escaping @Sendable (Job) -> CachedImage?
  ) async throws(StoreError) -> BatchEnds

  /// Closes batches that have received nothing for so long, and forgets those whose `expiresAt` has come, up to `count`.
  /// - Returns: how many; `count` also where it had enough to do with fewer, as of rejected lines some thousand go at a time.
  func tidyBatches(idleFor idle: Duration, _ count: Int) async throws(StoreError) -> Int

  /// Writes down that batches have ended, where that is not done by the transactions that end their jobs: those whose last
  /// jobs may have ended through this process. What is missed ``tidyBatches(idleFor:_:)`` finds.
  /// - Returns: whether somebody is to be told of a batch's end that was not there when this was last asked.
  func finishBatches() async throws(StoreError) -> Bool

  /// Changes failed jobs of a batch in the order of their lines, which is saved as ``JobRecords/update(_:within:_:)``
  /// saves it. It ends at the first one that would be queued and finds no place: what came before stays queued.
  /// - Returns: nil: there is no such batch.
  func retry(_ query: RetryQuery, _ change: @escaping @Sendable (inout Job) -> Bool)
    async throws(StoreError) -> BatchRetry?

  /// The batch, unless there is none or it is purged.
  func batch(_ id: BatchID) async throws(StoreError) -> Batch?

  /// The batches that fit, newest first.
  func batches(_ query: BatchQuery) async throws(StoreError) -> BatchPage

  /// What has become of the lines in a range, in their order; nil where there is no such batch.
  func results(_ query: ResultQuery) async throws(StoreError) -> BatchResults?
}

/// What came of a new batch.
public enum BatchOpening: Sendable, Equatable {
  /// It is kept.
  case opened
  /// The same key came with the same request before, which this batch came of.
  case repeated(BatchID)
  /// The same key came with another request.
  case keyReused
  /// As many of the owner's batches are not over as may be.
  case tooMany
}

/// What came of lines.
public enum BatchAddition: Sendable, Equatable {
  /// They are durable: the batch as it then is.
  case taken(Batch)
  /// The batch receives no more, or goes on at another line.
  case refused(Batch)
  /// As many jobs of batches are queued as may.
  case queueFull
  /// The records would have more bytes than they may (``SubmitOutcome/recordsFull``).
  case recordsFull
  /// There is no such batch.
  case unknown
}

/// Jobs that ended as their batch was cancelled or purged.
public struct BatchEnds: Sendable, Equatable {
  /// All cancelled or purged batches that are not done with, whichever had their turn: jobs of theirs may be loading.
  public var batches: [BatchID] = []
  /// `cancelled` now.
  public var cancelled: [Job] = []
  /// As they were when they were forgotten.
  public var removed: [Job] = []
  /// Whether there are others, or rejected lines of purged batches.
  public var isMore = false

  /// None.
  public init() {}

  package var count: Int { cancelled.count + removed.count }
}

/// Which failed jobs of a batch to change.
public struct RetryQuery: Sendable, Equatable {
  /// The batch.
  public let batch: BatchID
  /// Why they failed.
  public let codes: Set<FailureCode>
  /// Lines after this one.
  public var after = 0
  /// At the most.
  public let count: Int
  /// How many places there are for jobs of batches.
  public let capacity: QueueCapacity

  /// Jobs that failed so.
  public init(
    _ batch: BatchID, codes: Set<FailureCode>, count: Int, within capacity: QueueCapacity = .max
  ) {
    (self.batch, self.codes, self.count) = (batch, codes, count)
    self.capacity = capacity
  }
}

/// Failed jobs of a batch that were changed.
public struct BatchRetry: Sendable, Equatable {
  /// As they are now.
  public var jobs: [Job] = []
  /// The line after which others may be; nil: that was all.
  public var next: Int?
  /// Whether one would have been queued next for which there is no place: those from it on are as they were.
  public var isQueueFull = false

  /// None yet.
  public init(next: Int?) { self.next = next }
}

/// Lines of an upload that follow each other.
public struct BatchLines: Sendable {
  /// How many came before them.
  public let offset: Int
  /// How many there are, with those that are neither jobs nor rejected.
  public package(set) var count = 0
  /// Those that are jobs: each with its place.
  public package(set) var jobs: [Job] = []
  /// Those of which none could be made.
  public package(set) var rejected: [RejectedLine] = []
  /// Whom to tell of the batch's end, where they say so.
  public let webhook: Webhook?
  /// ``Batch/content`` with these lines; nil: they don't change it.
  public let content: BatchContent?

  /// Lines after so many.
  public init(
    after offset: Int, count: Int = 0, jobs: [Job] = [], rejected: [RejectedLine] = [],
    webhook: Webhook? = nil, content: BatchContent? = nil
  ) {
    (self.offset, self.count, self.jobs, self.rejected) = (offset, count, jobs, rejected)
    (self.webhook, self.content) = (webhook, content)
  }
}

/// Which batches to list.
public struct BatchQuery: Sendable, Equatable {
  /// Nil: everyone's.
  public var owner: Owner?
  /// Empty: any.
  public var states: Set<Batch.State> = []
  /// Only batches older than this one.
  public var before: BatchID?
  /// Only those that expire after this moment.
  public var now: Timestamp
  /// At the most.
  public var limit: Int

  /// A query.
  public init(owner: Owner?, now: Timestamp, limit: Int) {
    (self.owner, self.now, self.limit) = (owner, now, limit)
  }
}

/// A part of a list of batches.
public struct BatchPage: Sendable, Equatable {
  /// Newest first.
  public var batches: [Batch]
  /// Whether older ones follow.
  public var hasMore: Bool
  /// The last one that was looked at, where that is none of these.
  public var last: BatchID?

  /// A page.
  public init(batches: [Batch], hasMore: Bool, last: BatchID? = nil) {
    (self.batches, self.hasMore, self.last) = (batches, hasMore, last)
  }
}

/// Which lines' results to read.
public struct ResultQuery: Sendable, Equatable {
  /// The batch.
  public let batch: BatchID
  /// Lines after this one.
  public var after: Int
  /// Up to this one.
  public var through: Int
  /// Those that have come to one of these; empty: to any in which a job stays.
  public var phases: Set<Phase> = []
  /// Whether rejected ones are wanted.
  public var withRejected = true
  /// Whether it ends before the first job that has not ended.
  public var isInOrder = false
  /// Of their records, about: it ends early with the line by which those of jobs, or of rejected ones, have so many.
  public var maxBytes = 256 << 10

  /// Lines of a batch.
  public init(_ batch: BatchID, after: Int, through: Int) {
    (self.batch, self.after, self.through) = (batch, after, through)
  }

  /// Whether a job is told.
  package func wants(_ phase: Phase) -> Bool {
    phase.isFinished && (phases.isEmpty || phases.contains(phase))
  }
}

/// What has become of lines.
public struct BatchResults: Sendable, Equatable {
  /// A line.
  public enum Line: Sendable, Equatable {
    /// A job that has ended.
    case job(Job, line: Int)
    /// One of which none could be made.
    case rejected(RejectedLine)

    /// Its number.
    package var number: Int {
      switch self {
      case .job(_, let line): line
      case .rejected(let line): line.line
      }
    }
  }

  /// In their order.
  public var lines: [Line]
  /// Up to where that is all there is to tell: to the end of the range, to the line by which it has as many bytes as it
  /// may, or before the first job that has not ended.
  public var through: Int

  /// Lines.
  public init(lines: [Line], through: Int) { (self.lines, self.through) = (lines, through) }
}
