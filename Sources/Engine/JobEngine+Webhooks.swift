public import Jobs

/// What is told of a job's ends.
extension JobEngine {
  /// The messages of a job, the oldest first.
  public func messages(of id: JobID, for caller: Caller) async throws(JobsError)
    -> [WebhookMessage]
  {
    _ = try await job(id, for: caller)
    return try await storing { () async throws(StoreError) in try await store.messages(of: id) }
  }

  /// Has the newest message of a job sent again, now.
  /// - Returns: the message; nil where there is none.
  public func sendAgain(of id: JobID, for caller: Caller) async throws(JobsError)
    -> WebhookMessage?
  {
    _ = try await job(id, for: caller)
    let message = try await storing { () async throws(StoreError) in
      try await store.sendAgain(of: id)
    }
    webhooks?.ring()
    return message
  }
}
