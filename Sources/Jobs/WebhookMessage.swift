/// What somebody is told of an end: made by the transaction that ends it, and sent until it is taken or given up.
///
/// It tells how things stood then, whatever became of them: each try sends the same.
public struct WebhookMessage: Sendable, Equatable, Identifiable, Codable {
  /// Its name: the same over all tries, and no other message's.
  public struct ID: Hashable, Sendable, Codable {
    /// What it tells of.
    public let subject: JobID
    /// The revision that the end made of it.
    public let number: Int

    /// A message's name.
    public init(subject: JobID, number: Int) { (self.subject, self.number) = (subject, number) }
  }

  /// What it tells of, as it was.
  public enum Subject: Sendable, Equatable, Codable {
    case job(Job)
    case batch(Batch)
  }

  /// One time that it was sent.
  public struct Try: Sendable, Equatable, Codable {
    /// When.
    public var moment: Timestamp
    /// What the receiver answered; nil: nothing.
    public var status: Int?
    /// Why there is no answer.
    public var failure: FetchError?
    /// How long that took.
    public var time: Duration

    /// A try.
    public init(at moment: Timestamp, status: Int?, failure: FetchError?, time: Duration) {
      (self.moment, self.status) = (moment, status)
      (self.failure, self.time) = (failure, time)
    }

    /// Whether the receiver answered 2xx.
    public var isTaken: Bool { status.map { 200...299 ~= $0 } ?? false }
  }

  /// How far it has come.
  public enum State: String, Sendable, Codable { case pending, delivered, failed }

  /// Its name.
  public let id: ID
  /// What happened.
  public let event: WebhookEvent
  /// Where it is sent.
  public let url: SourceURL
  /// Whose secrets sign it.
  public let owner: Owner
  /// When it happened.
  public let moment: Timestamp
  /// What it tells of.
  public let subject: Subject

  /// How far it has come.
  public private(set) var state = State.pending
  /// When it is sent next; nil once it is taken or given up.
  public private(set) var nextTry: Timestamp?
  /// The newest ``mostTries``, in their order.
  public private(set) var tries: [Try] = []
  /// Waits between tries that are over, since it was last asked for.
  private var waits = 0
  /// Whether it was asked for while it was on its way: it is sent once more after that.
  @Sparse public private(set) var isAskedFor = false

  /// The receiver's host, as stores look for it: no name of a host is longer.
  public var host: String { String(decoding: url.host.utf8.prefix(255), as: UTF8.self) }

  /// Tries that are told of.
  public static let mostTries = 32

  /// Messages of a job or batch that are kept and told of, beside those that wait to be sent: one may be fetched again and
  /// cancelled for as long as it is kept.
  package static let mostOfSubject = 16

  /// What a job's new state is to be told as; nil where nobody wants to know, or it had ended before.
  /// - Parameter before: the phase that it comes from; nil: it is new.
  package init?(endOf job: Job, after before: Phase?) {
    guard let webhook = job.submission.webhook, before?.isFinished != true,
      let event = WebhookEvent(job.phase), webhook.events.contains(event),
      let moment = job.finishedAt
    else { return nil }
    self.init(
      ID(subject: job.id, number: job.revision), event, to: webhook.url, for: job.owner, at: moment,
      of: .job(job.asTold))
  }

  /// What a batch whose jobs have all ended is to be told as; nil where nobody wants to know, or they had before.
  /// - Parameter wasOver: whether they had.
  package init?(endOf batch: Batch, wasOver: Bool) {
    guard let webhook = batch.webhook, !wasOver, !batch.isPurged,
      webhook.events.contains(.batchFinished), let moment = batch.finishedAt
    else { return nil }
    self.init(
      ID(subject: batch.id, number: batch.revision), .batchFinished, to: webhook.url,
      for: batch.owner, at: moment, of: .batch(batch))
  }

  /// A message that is due at once.
  package init(
    _ id: ID, _ event: WebhookEvent, to url: SourceURL, for owner: Owner, at moment: Timestamp,
    of subject: Subject
  ) {
    (self.id, self.event, self.url, self.owner) = (id, event, url, owner)
    (self.moment, self.subject, nextTry) = (moment, subject, moment)
  }

  /// It was sent.
  /// - Parameters:
  ///   - answer: what came of it.
  ///   - dice: 0 to 1: tries that failed together are not made again together.
  public mutating func note(
    _ answer: WebhookAnswer, under schedule: WebhookSchedule, dice: Double
  ) {
    tries = tries.suffix(Self.mostTries - 1) + [answer.asTry]
    guard !answer.isTaken else {
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

  /// Once more from the first try on, whatever became of it.
  public mutating func sendAgain(at moment: Timestamp) {
    (state, nextTry, waits) = (.pending, moment, 0)
    isAskedFor = false
  }

  /// Once more after the try that is under way, whatever becomes of that.
  package mutating func askFor() { isAskedFor = true }
}

extension WebhookMessage.ID: CustomStringConvertible {
  /// As `webhook-id` has it.
  public var description: String { "msg_\(subject)_\(number)" }
}

/// What came of sending a message.
public struct WebhookAnswer: Sendable, Equatable {
  /// When it was sent.
  public var moment: Timestamp
  /// How long that took.
  public var time: Duration
  /// What the receiver answered; nil: nothing.
  public var status: Int?
  /// Not before this much time it wants to be asked again.
  public var retryAfter: Duration?
  /// Why there is no answer.
  public var error: FetchError?

  /// An answer, or none.
  public init(
    at moment: Timestamp, time: Duration, status: Int?, retryAfter: Duration? = nil,
    error: FetchError? = nil
  ) {
    (self.moment, self.time, self.status) = (moment, time, status)
    (self.retryAfter, self.error) = (retryAfter, error)
  }

  /// 2xx: the message is the receiver's.
  public var isTaken: Bool { asTry.isTaken }

  /// 410: nobody is there any more, and nobody will be.
  public var isFinal: Bool { status == 410 }

  fileprivate var asTry: WebhookMessage.Try {
    WebhookMessage.Try(at: moment, status: status, failure: error, time: time)
  }
}

/// When a message that was not taken is sent again.
public struct WebhookSchedule: Sendable, Equatable {
  /// After the first try, the second, and so on; after as many it is given up.
  public var waits: [Duration]

  /// That of Standard Webhooks.
  public static let standard = WebhookSchedule(
    waits: [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400].map { .seconds($0) })
  /// No message waits longer for its next try: `webhooks.retry` allows 30 days, and up to a quarter is added.
  package static let longestWait: Duration = .seconds(30 * 86_400 * 5 / 4)
  /// A receiver's `Retry-After` counts up to this.
  static let longestAsked: Duration = .seconds(86_400)

  /// Waits one after the other.
  public init(waits: [Duration]) { self.waits = waits }

  /// Never shorter than said, and up to a quarter longer.
  func wait(after count: Int, dice: Double) -> Duration? {
    count < waits.count ? waits[count] * (1 + dice / 4) : nil
  }
}
