public import Jobs

/// What the API needs of the job engine for batches. Another owner's batch is as unknown as one that never was.
public protocol BatchService: Sendable {
  /// Begins a batch, durably; lines may be added from then on. With the key of an earlier one: that one, also where no new
  /// one would be begun.
  func begin(_ new: NewBatch, by caller: Caller, key: IdempotencyKey?)
    async throws(JobsError) -> BegunBatch

  /// Makes lines durable that go on from those which are there; their jobs run as they come.
  func add(_ new: NewLines, to batch: Batch, by caller: Caller) async throws(JobsError) -> Batch

  /// Ends what a batch receives.
  func close(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch

  /// Forgets a batch of which so many lines came, none of them a job; one that somebody has gone on with stays.
  func abandon(_ id: BatchID, after lines: Int) async throws(JobsError)

  /// Cancels the batch: none of its jobs begins from then on. One that is over stays as it is.
  func cancel(batch id: BatchID, for caller: Caller) async throws(JobsError) -> Batch

  /// Forgets the batch and all its jobs.
  /// - Parameter lines: how many came of it, where its beginning was refused: with its key, as who sends it again begins
  ///   another one. `.unknownBatch` where somebody has gone on with it: it stays.
  func purge(batch id: BatchID, refusedAfter lines: Int?, for caller: Caller)
    async throws(JobsError)

  /// Queues failed jobs again: those that failed so; where none is named, all that may succeed without a change.
  func retry(batch id: BatchID, codes: Set<FailureCode>, for caller: Caller)
    async throws(JobsError) -> Batch

  /// The batch as it is.
  func batch(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch

  /// A part of the list of batches.
  func batches(_ query: BatchQuery) async throws(JobsError) -> BatchPage

  /// What has become of lines of a batch that the caller has seen.
  func results(_ query: ResultQuery) async throws(JobsError) -> BatchResults

  /// A batch that the caller has seen, as it is and as it becomes: of what is not taken in time only the newest. Nil, and then
  /// the end, once there is none.
  func follow(_ id: BatchID) -> AsyncStream<Batch?>

  /// The messages that tell of the batch's ends, the oldest first.
  func messages(ofBatch id: BatchID, for caller: Caller)
    async throws(JobsError) -> [WebhookMessage]

  /// Has the newest of them sent again, now; nil where there is none.
  func sendAgain(ofBatch id: BatchID, for caller: Caller)
    async throws(JobsError) -> WebhookMessage?

  /// The batch once it is over, or has another revision than this one, or the time is over.
  func wait(_ id: BatchID, for caller: Caller, beyond revision: Int?, atMost limit: Duration)
    async throws(JobsError) -> Batch
}
