/// A webhook message. It is written in the transaction that finishes the job or batch, and retried until it
/// is delivered or the retries are exhausted.
///
/// It describes the state at that moment, even if the job or batch changes later: each attempt sends the same
/// body.
package struct WebhookMessage: Sendable, Equatable, Identifiable, Codable {
  /// The ID of a message. It is unique and the same for all attempts.
  package struct ID: Hashable, Sendable, Codable {
    /// The job or batch.
    package let subject: JobID
    /// The revision of the job or batch at its end.
    package let number: Int

    package init(subject: JobID, number: Int) { (self.subject, self.number) = (subject, number) }
  }

  /// The job or batch as it was at its end.
  package enum Subject: Sendable, Equatable, Codable {
    case job(Job)
    case batch(Batch)
  }

  /// One attempt to send the message.
  package struct Attempt: Sendable, Equatable, Codable {
    /// When the message was sent.
    package var moment: Timestamp
    /// The status of the receiver's response; nil if there was none.
    package var status: Int?
    /// Why there was no response.
    package var failure: FetchError?
    /// Time from the request to the response or failure.
    package var time: Duration

    init(at moment: Timestamp, status: Int?, failure: FetchError?, time: Duration) {
      (self.moment, self.status) = (moment, status)
      (self.failure, self.time) = (failure, time)
    }

    /// Whether the receiver responded with 2xx.
    package var isTaken: Bool { status.map { 200...299 ~= $0 } ?? false }
  }

  /// The state of the message.
  package enum State: String, Sendable, Codable { case pending, delivered, failed }

  package let id: ID
  package let event: WebhookEvent
  /// The URL to which the message is posted.
  package let url: SourceURL
  /// The owner whose secrets sign the message.
  package let owner: Owner
  /// When the event happened.
  package let moment: Timestamp
  package let subject: Subject

  package private(set) var state = State.pending
  /// When the next attempt is due; nil after delivery or failure.
  package private(set) var nextTry: Timestamp?
  /// The newest ``mostTries`` attempts, in order.
  package private(set) var tries: [Attempt] = []
  /// The number of back-offs used since the message was created or last requested again.
  private var waits = 0
  /// Whether the message was requested again during an attempt. It is then sent again after that attempt.
  @Sparse package private(set) var isAskedFor = false

  /// The receiver's host, for the index of stores. Cut to 255 bytes, the maximum length of a host name.
  package var host: String { String(decoding: url.host.utf8.prefix(255), as: UTF8.self) }

  /// The number of attempts that are kept.
  package static let mostTries = 32

  /// The number of messages kept for one job or batch, in addition to those that wait to be sent. A job has
  /// several messages if it is fetched again after its end.
  package static let mostOfSubject = 16

  /// The message about a job that has just ended. Nil if no webhook wants the event, or if the job had ended
  /// before.
  /// - Parameter before: The job's phase before the change; nil for a new job.
  package init?(endOf job: Job, after before: Phase?) {
    guard let webhook = job.submission.webhook, before?.isFinished != true,
      let event = WebhookEvent(job.phase), webhook.events.contains(event),
      let moment = job.finishedAt
    else { return nil }
    self.init(
      ID(subject: job.id, number: job.revision), event, to: webhook.url, for: job.owner, at: moment,
      of: .job(job.asShown))
  }

  /// The message about a batch whose jobs have all ended. Nil if no webhook wants the event, or if the batch
  /// had ended before.
  /// - Parameter wasOver: Whether the batch had ended before the change.
  package init?(endOf batch: Batch, wasOver: Bool) {
    guard let webhook = batch.webhook, !wasOver, !batch.isPurged,
      webhook.events.contains(.batchFinished), let moment = batch.finishedAt
    else { return nil }
    self.init(
      ID(subject: batch.id, number: batch.revision), .batchFinished, to: webhook.url,
      for: batch.owner, at: moment, of: .batch(batch))
  }

  /// A message that is due immediately.
  init(
    _ id: ID, _ event: WebhookEvent, to url: SourceURL, for owner: Owner, at moment: Timestamp,
    of subject: Subject
  ) {
    (self.id, self.event, self.url, self.owner) = (id, event, url, owner)
    (self.moment, self.subject, nextTry) = (moment, subject, moment)
  }

  /// Records the result of an attempt and sets the time of the next one.
  /// - Parameters:
  ///   - answer: The result of the attempt.
  ///   - dice: A random number from 0 to 1. It spreads the retries of messages that failed together.
  package mutating func recordAnswer(
    _ answer: WebhookAnswer, under schedule: WebhookSchedule, dice: Double
  ) {
    tries = tries.suffix(Self.mostTries - 1) + [answer.asTry]
    guard !answer.isDelivered else {
      (state, nextTry) = (.delivered, nil)
      return
    }
    guard !answer.isFinal, let wait = schedule.wait(after: waits, dice: dice) else {
      (state, nextTry) = (.failed, nil)
      return
    }
    waits += 1
    let asked = min(answer.retryAfter ?? .zero, WebhookSchedule.longestAsked)
    nextTry = answer.moment + answer.time + max(wait, asked)
  }

  /// Makes the message due now and restarts the schedule of attempts, even after delivery or failure.
  package mutating func sendAgain(at moment: Timestamp) {
    (state, nextTry, waits) = (.pending, moment, 0)
    isAskedFor = false
  }

  /// Requests another sending after the current attempt, whatever its result.
  package mutating func requestAgain() { isAskedFor = true }
}

extension WebhookMessage.ID: CustomStringConvertible {
  /// The value of the header field `webhook-id`.
  package var description: String { "msg_\(subject)_\(number)" }
}

/// The result of sending a message.
package struct WebhookAnswer: Sendable, Equatable {
  /// When the message was sent.
  var moment: Timestamp
  /// Time from the request to the response or failure.
  package var time: Duration
  /// The status of the receiver's response; nil if there was none.
  package var status: Int?
  /// The receiver's `Retry-After`.
  var retryAfter: Duration?
  /// Why there was no response.
  package var error: FetchError?

  package init(
    at moment: Timestamp, time: Duration, status: Int?, retryAfter: Duration? = nil,
    error: FetchError? = nil
  ) {
    (self.moment, self.time, self.status) = (moment, time, status)
    (self.retryAfter, self.error) = (retryAfter, error)
  }

  /// 2xx: the message is delivered.
  package var isDelivered: Bool { asTry.isTaken }

  /// 410 (Gone): the receiver wants no more messages at this URL.
  var isFinal: Bool { status == 410 }

  fileprivate var asTry: WebhookMessage.Attempt {
    WebhookMessage.Attempt(at: moment, status: status, failure: error, time: time)
  }
}

/// The schedule of attempts for a message that was not accepted.
package struct WebhookSchedule: Sendable, Equatable {
  /// The wait after the first attempt, after the second, and so on. The message fails after the attempt that
  /// follows the last.
  package var waits: [Duration]

  /// The schedule of Standard Webhooks.
  package static let standard = WebhookSchedule(
    waits: [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400].map { .seconds($0) })
  /// The longest possible wait for an attempt: `webhooks.retry` allows 30 days, and up to a quarter is added.
  package static let longestWait: Duration = .seconds(30 * 86_400 * 5 / 4)
  /// The limit for a receiver's `Retry-After`: one day.
  static let longestAsked: Duration = .seconds(86_400)

  package init(waits: [Duration]) { self.waits = waits }

  /// The wait after `count` earlier waits, plus up to a quarter; nil if the schedule is exhausted.
  func wait(after count: Int, dice: Double) -> Duration? {
    count < waits.count ? waits[count] * (1 + dice / 4) : nil
  }
}

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
