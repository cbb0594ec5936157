public import Jobs

/// What is told of ends.
extension JobEngine {
  /// The messages of a job, the oldest first.
  public func messages(of id: JobID, for caller: Caller) async throws(JobsError)
    -> [WebhookMessage]
  {
    _ = try await job(id, for: caller)
    return try await toldMessages(of: id)
  }

  /// Has the newest message of a job sent again, now.
  /// - Returns: the message; nil where there is none.
  public func sendAgain(of id: JobID, for caller: Caller) async throws(JobsError)
    -> WebhookMessage?
  {
    _ = try await job(id, for: caller)
    return try await tellAgain(of: id)
  }

  /// The messages of a batch, the oldest first.
  public func messages(ofBatch id: BatchID, for caller: Caller) async throws(JobsError)
    -> [WebhookMessage]
  {
    _ = try await batch(id, for: caller)
    return try await toldMessages(of: id)
  }

  /// Has the newest message of a batch sent again, now.
  /// - Returns: the message; nil where there is none.
  public func sendAgain(ofBatch id: BatchID, for caller: Caller) async throws(JobsError)
    -> WebhookMessage?
  {
    _ = try await batch(id, for: caller)
    return try await tellAgain(of: id)
  }

  /// - Throws: `.tooManyMessages` where as many wait for the owner's receivers as may.
  func checkMessages(of owner: Owner) async throws(JobsError) {
    guard try await hasRoomForMessages(of: owner) else { throw .tooManyMessages }
  }

  func hasRoomForMessages(of owner: Owner) async throws(JobsError) -> Bool {
    try await storing { () async throws(StoreError) in
      try await waitingMessages.hasRoom(for: owner)
    }
  }

  private func toldMessages(of subject: JobID) async throws(JobsError) -> [WebhookMessage] {
    try await storing { () async throws(StoreError) in try await store.messages(of: subject) }
  }

  private func tellAgain(of subject: JobID) async throws(JobsError) -> WebhookMessage? {
    let message = try await storing { () async throws(StoreError) in
      try await store.sendAgain(of: subject)
    }
    webhooks?.ring()
    return message
  }
}
