package import Jobs

/// The batch operations that the API needs from the job engine. A batch of another owner is treated as unknown.
package protocol BatchService: Sendable {
  /// Creates a batch durably; it accepts lines from then on. If an earlier batch has the same `key`, returns that
  /// batch, even if the owner may create no new ones.
  func createBatch(_ new: NewBatch, by caller: Caller, key: IdempotencyKey?)
    async throws(JobsError) -> BegunBatch

  /// Stores lines durably, appended to the lines that the batch has. Their jobs can start at once.
  func add(_ new: NewLines, to batch: Batch, by caller: Caller) async throws(JobsError) -> Batch

  /// Closes the batch: it accepts no more lines.
  func close(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch

  /// Deletes a batch that received `lines` lines, if none of them became a job. A batch with more lines stays.
  func deleteEmptyBatch(_ id: BatchID, after lines: Int) async throws(JobsError)

  /// Cancels the batch: none of its queued jobs starts. A finished batch is not changed.
  func cancel(batch id: BatchID, for caller: Caller) async throws(JobsError) -> Batch

  /// Deletes the batch and all its jobs.
  /// - Parameter lines: the number of lines received before the batch's first request was refused. The batch is then
  ///   deleted together with its idempotency key, so that the client can send it again. If the batch has more lines, it
  ///   stays and `.unknownBatch` is thrown.
  func purge(batch id: BatchID, refusedAfter lines: Int?, for caller: Caller)
    async throws(JobsError)

  /// Queues failed jobs again: those that failed with one of `codes`. If `codes` is empty, all failed jobs that may
  /// succeed without a change.
  func retry(batch id: BatchID, codes: Set<FailureCode>, for caller: Caller)
    async throws(JobsError) -> Batch

  func batch(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch

  /// One page of the caller's batches.
  func batches(_ query: BatchQuery) async throws(JobsError) -> BatchPage

  /// The results of a batch's lines. The caller's access to the batch was checked before.
  func results(_ query: ResultQuery) async throws(JobsError) -> BatchResults

  /// The current state of the batch and each later one. If the consumer is slow, only the newest state is kept. Ends
  /// after nil once the batch is deleted. The caller's access was checked before.
  func follow(_ id: BatchID) -> AsyncStream<Batch?>

  /// The webhook messages of the batch, oldest first.
  func messages(ofBatch id: BatchID, for caller: Caller)
    async throws(JobsError) -> [WebhookMessage]

  /// Sends the newest webhook message again, now. Returns nil if there is none.
  func resendWebhook(ofBatch id: BatchID, for caller: Caller)
    async throws(JobsError) -> WebhookMessage?

  /// Waits until the batch has finished, has another revision than `revision`, or `limit` has passed. Returns it then.
  func wait(_ id: BatchID, for caller: Caller, beyond revision: Int?, atMost limit: Duration)
    async throws(JobsError) -> Batch
}
