/// Whom to tell of the ends of a job or a batch.
public struct Webhook: Sendable, Hashable, Codable {
  /// Where messages are sent.
  public var url: SourceURL
  /// Of which ends, in the order of ``WebhookEvent/allCases``.
  public var events: [WebhookEvent]

  /// Whom to tell of what.
  public init(url: SourceURL, events: Set<WebhookEvent>) {
    self.url = url
    self.events = WebhookEvent.allCases.filter(events.contains)
  }
}

/// What a message tells of: its `type`.
public enum WebhookEvent: String, Sendable, CaseIterable, Codable {
  case jobSuccess = "job.success"
  case jobFailure = "job.failure"
  case jobCancelled = "job.cancelled"
  case batchFinished = "batch.finished"

  /// A job's ends.
  public static let jobEnds: Set<WebhookEvent> = [.jobSuccess, .jobFailure, .jobCancelled]

  /// A job that is now in that phase; nil where that is no end.
  public init?(_ phase: Phase) {
    switch phase {
    case .queued, .loading: return nil
    case .success: self = .jobSuccess
    case .failure: self = .jobFailure
    case .cancelled: self = .jobCancelled
    }
  }
}
