package import Jobs

/// Webhook messages about finished jobs and batches.
extension JobEngine {
  /// Returns the messages of a job, oldest first.
  package func messages(of id: JobID, for caller: Caller) async throws(JobsError)
    -> [WebhookMessage]
  {
    _ = try await job(id, for: caller)
    return try await storedMessages(of: id)
  }

  /// Sends the newest message of a job again, now.
  /// - Returns: the message; nil if the job has none.
  package func resendWebhook(of id: JobID, for caller: Caller) async throws(JobsError)
    -> WebhookMessage?
  {
    _ = try await job(id, for: caller)
    return try await resend(of: id)
  }

  /// Returns the messages of a batch, oldest first.
  package func messages(ofBatch id: BatchID, for caller: Caller) async throws(JobsError)
    -> [WebhookMessage]
  {
    _ = try await batch(id, for: caller)
    return try await storedMessages(of: id)
  }

  /// Sends the newest message of a batch again, now.
  /// - Returns: the message; nil if the batch has none.
  package func resendWebhook(ofBatch id: BatchID, for caller: Caller) async throws(JobsError)
    -> WebhookMessage?
  {
    _ = try await batch(id, for: caller)
    return try await resend(of: id)
  }

  /// - Throws: `.tooManyMessages` if the owner's limit of undelivered messages is reached.
  func checkMessages(of owner: Owner) async throws(JobsError) {
    guard try await hasRoomForMessages(of: owner) else { throw .tooManyMessages }
  }

  func hasRoomForMessages(of owner: Owner) async throws(JobsError) -> Bool {
    try await withStore { () async throws(StoreError) in
      try await webhooks.quota.hasRoom(for: owner)
    }
  }

  private func storedMessages(of subject: JobID) async throws(JobsError) -> [WebhookMessage] {
    try await withStore { () async throws(StoreError) in try await store.messages(of: subject) }
  }

  private func resend(of subject: JobID) async throws(JobsError) -> WebhookMessage? {
    let message = try await withStore { () async throws(StoreError) in
      try await store.sendAgain(of: subject)
    }
    webhooks.sender?.wake()
    return message
  }
}
