/// The receiver of messages about the end of a job or a batch.
package struct Webhook: Sendable, Hashable, Codable {
  /// The URL to which messages are posted.
  package var url: SourceURL
  /// The events to report, in the order of ``WebhookEvent/allCases``.
  package var events: [WebhookEvent]

  package init(url: SourceURL, events: Set<WebhookEvent>) {
    self.url = url
    self.events = WebhookEvent.allCases.filter(events.contains)
  }
}

/// The event that a message reports: its `type`.
package enum WebhookEvent: String, Sendable, CaseIterable, Codable {
  case jobSuccess = "job.success"
  case jobFailure = "job.failure"
  case jobCancelled = "job.cancelled"
  case batchFinished = "batch.finished"

  /// The events of a job.
  package static let jobEnds: Set<WebhookEvent> = [.jobSuccess, .jobFailure, .jobCancelled]

  /// The event of a job that has entered this phase; nil if the phase is not final.
  package init?(_ phase: Phase) {
    switch phase {
    case .queued, .loading: return nil
    case .success: self = .jobSuccess
    case .failure: self = .jobFailure
    case .cancelled: self = .jobCancelled
    }
  }
}
