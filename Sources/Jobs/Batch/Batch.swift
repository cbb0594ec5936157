/// The ID of a batch, in the same form as a job's ID.
package typealias BatchID = JobID

/// Jobs that a client submits together and follows as one. Each line of the request becomes a job.
///
/// A batch holds counts of its jobs, not the jobs. The transactions that change jobs also update the counts,
/// so reading a batch costs the same for one job as for a million. Only the methods in `Batch+Moves.swift`
/// change a batch.
package struct Batch: Sendable, Equatable, Identifiable, Codable {
  /// The state of a batch.
  package enum State: String, Sendable, CaseIterable, Codable {
    /// More lines can be added.
    case receiving
    /// No more lines can be added; some jobs have not ended.
    case running
    /// All jobs have ended.
    case finished
    /// The owner cancelled the batch. Jobs that had not ended become `cancelled`.
    case cancelled

    /// Whether the batch is finished or cancelled. It runs again only if a client queues one of its jobs
    /// again.
    package var isOver: Bool { self == .finished || self == .cancelled }
  }

  /// A UUID that sorts by creation time.
  package let id: BatchID
  /// The owner of the batch and of its jobs.
  package let owner: Owner
  /// A name that the owner chose.
  package let name: String?
  /// Tags that each job of the batch has in addition to its own.
  package let tags: [String]
  /// Members that apply to every line that does not set them: JSON, as the client sent it.
  package let defaults: String?
  /// Whether the batch receives lines until a client closes it, in any number of uploads. Otherwise the end
  /// of the first complete upload closes it.
  package let isOpen: Bool
  /// The client's idempotency key.
  package let key: String?
  /// How long the batch is kept after its end. It stays longer if one of its jobs does.
  let retention: Duration
  /// When the first upload began.
  package let createdAt: Timestamp

  /// The receiver of a webhook message when the batch is finished.
  package var webhook: Webhook?

  package var state = State.receiving
  /// Lines that are stored durably: jobs, rejected lines, and lines that are neither.
  package var received = 0
  /// The number of jobs in each phase, and of rejected lines.
  package var counts = BatchCounts()
  /// Increases with every change.
  package var revision = 1
  /// When the last line arrived or the last upload began.
  package var receivedAt: Timestamp
  /// When the last job ended.
  package var finishedAt: Timestamp?
  /// When the batch is deleted.
  package var expiresAt: Timestamp?
  /// Whether the batch still has jobs that must be cancelled.
  package var isCancelling = false
  /// The content that a request with the same idempotency key must repeat: all lines, or those of the first
  /// request if the batch is open. Nil if the batch has no key.
  package var content: BatchContent?
  /// Whether the batch is purged: clients no longer see it, and its jobs are being deleted.
  package var isPurged = false
  /// The latest expiry time of the jobs that have ended.
  var lastExpiry: Timestamp?
  /// Jobs that end per second.
  var pace: Pace

  /// A batch without lines.
  package init(
    id: BatchID, owner: Owner, name: String? = nil, tags: [String] = [], defaults: String? = nil,
    isOpen: Bool = false, key: String? = nil, retention: Duration, webhook: Webhook? = nil,
    content: BatchContent? = nil, createdAt: Timestamp
  ) {
    (self.id, self.owner, self.name, self.tags) = (id, owner, name, tags)
    (self.defaults, self.isOpen, self.key, self.retention) = (defaults, isOpen, key, retention)
    (self.createdAt, receivedAt, self.webhook) = (createdAt, createdAt, webhook)
    self.content = content
    pace = Pace(at: createdAt)
  }
}

/// The position of a job in its batch.
package struct BatchPosition: Sendable, Hashable, Codable {
  package let id: BatchID
  /// The line number, counted from 1 over all uploads.
  package let line: Int

  package init(id: BatchID, line: Int) { (self.id, self.line) = (id, line) }
}

/// The number of a batch's jobs in each phase, and of its rejected lines.
package struct BatchCounts: Sendable, Equatable, Codable {
  private var queued = 0
  private var loading = 0
  private var success = 0
  private var failure = 0
  private var cancelled = 0
  /// Lines that are not valid jobs.
  package var rejected = 0
  /// Total bytes of the images. Equal images are counted once for each job.
  package var bytes = 0
  private var failures: [String: Int] = [:]

  init() {}

  /// Jobs in a phase. A deleted job still counts in the phase in which it ended.
  package subscript(phase: Phase) -> Int {
    get {
      switch phase {
      case .queued: queued
      case .loading: loading
      case .success: success
      case .failure: failure
      case .cancelled: cancelled
      }
    }
    set {
      switch phase {
      case .queued: queued = newValue
      case .loading: loading = newValue
      case .success: success = newValue
      case .failure: failure = newValue
      case .cancelled: cancelled = newValue
      }
    }
  }

  package var unfinished: Int { queued + loading }
  /// All jobs, including deleted ones, and all rejected lines.
  package var all: Int { queued + loading + success + failure + cancelled + rejected }

  /// Failed jobs by failure code.
  package var codes: [(code: FailureCode, count: Int)] {
    FailureCode.allCases.compactMap { code in
      failures[code.rawValue].flatMap { $0 > 0 ? (code, $0) : nil }
    }
  }

  mutating func add(_ count: Int, of code: FailureCode) {
    let sum = failures[code.rawValue, default: 0] + count
    failures[code.rawValue] = sum == 0 ? nil : sum
  }
}

/// Events per second, measured over the last five to ten seconds.
struct Pace: Sendable, Equatable, Codable {
  private let since: Timestamp
  /// When the current five-second window began.
  private var start: Timestamp
  private var current = 0
  /// Events in the window before.
  private var last = 0
  private static let window = Duration.seconds(5)

  /// Set if only the total count is known.
  private var average: Double?

  init(at moment: Timestamp) { (start, since) = (moment, moment) }

  /// The average of `count` events between two moments, for use when the recent events are not known
  /// separately.
  init(of count: Int, from start: Timestamp, to end: Timestamp) {
    self.init(at: start)
    average = Double(count) / max(1, (end - start).inSeconds)
  }

  mutating func add(_ count: Int, at moment: Timestamp) {
    roll(to: moment)
    current += count
  }

  private mutating func roll(to moment: Timestamp) {
    let passed = moment - start
    guard passed >= Self.window else { return }
    if passed >= Self.window * 2 {
      (start, current, last) = (moment, 0, 0)
    } else {
      (start, current, last) = (start + Self.window, 0, current)
    }
  }

  /// Returns the events per second at `moment`.
  func rate(at moment: Timestamp) -> Double {
    if let average { return average }
    var pace = self
    pace.roll(to: moment)
    let seen = min(moment - since, Self.window + (moment - pace.start))
    return Double(pace.current + pace.last) / max(1, seen.inSeconds)
  }
}

/// A line that is not a valid job.
package struct RejectedLine: Sendable, Equatable, Codable {
  /// Counted from 1 over all uploads.
  package let line: Int
  /// The line's URL; nil if there is none that can be shown.
  package let url: String?
  /// The API's error code, as a single submission of this line would return it.
  package let code: String
  /// An explanation for people.
  package let detail: String

  package init(line: Int, url: String?, code: String, detail: String) {
    (self.line, self.url, self.code, self.detail) = (line, url, code, detail)
  }

  /// Approximate bytes of the stored record.
  package var keptBytes: Int { 128 + (url?.utf8.count ?? 0) + detail.utf8.count }
}

/// The value of a column that tells stores which batches need work. The numbers are stored and must not
/// change.
package enum BatchStage: Int64, Sendable {
  case receiving = 0, running, finished, cancelled
  /// Cancelled, with jobs that still have to be cancelled.
  case cancelling
  /// The batch and its jobs have to be deleted.
  case purged

  package init(_ batch: Batch) {
    self = batch.isPurged ? .purged : batch.isCancelling ? .cancelling : .init(batch.state)
  }

  /// The stage of a batch in `state` that is neither purged nor being cancelled.
  package init(_ state: Batch.State) {
    self =
      switch state {
      case .receiving: .receiving
      case .running: .running
      case .finished: .finished
      case .cancelled: .cancelled
      }
  }
}

/// A batch to create.
package struct NewBatch: Sendable, Equatable {
  /// A name that the owner chose.
  package var name: String?
  /// Tags that each job of the batch has in addition to its own.
  package var tags: [String]
  /// ``Batch/defaults``.
  package var defaults: String?
  /// ``Batch/isOpen``.
  package var isOpen: Bool
  /// The receiver of a webhook message when the batch is finished.
  package var webhook: Webhook?
  /// ``Batch/content`` before the first line.
  package var content: BatchContent?

  package init(
    name: String? = nil, tags: [String] = [], defaults: String? = nil, isOpen: Bool = false,
    webhook: Webhook? = nil, content: BatchContent? = nil
  ) {
    (self.name, self.tags, self.defaults, self.isOpen) = (name, tags, defaults, isOpen)
    (self.webhook, self.content) = (webhook, content)
  }
}

/// The result of creating a batch.
package enum BegunBatch: Sendable {
  /// The batch was created.
  case new(Batch)
  /// An earlier request with the same idempotency key created the batch. The value is its present state.
  case repeated(Batch)
  /// An earlier request created the batch, which has since expired or been purged.
  case gone(BatchID)
}

/// Consecutive lines of an upload.
package struct NewLines: Sendable {
  /// A line that is a job.
  package struct Job: Sendable {
    /// The line number.
    package let line: Int
    package let job: NewJob

    package init(line: Int, job: NewJob) { (self.line, self.job) = (line, job) }
  }

  /// The number of lines before these.
  package let offset: Int
  /// The number of lines, including lines that are neither jobs nor rejected.
  package var count = 0
  /// Approximate bytes of their stored records.
  package var bytes = 0
  /// The lines that are jobs.
  package var jobs: [Job] = []
  /// The lines that are not valid jobs.
  package var rejected: [RejectedLine] = []
  /// The webhook of the batch, if these lines set it.
  package var webhook: Webhook?
  /// ``Batch/content`` after these lines; nil if they do not change it.
  package var content: BatchContent?

  /// Whether the lines change nothing.
  package var isEmpty: Bool {
    count == 0 && webhook == nil && content?.isComplete != true
  }

  /// No lines, after `offset` earlier lines.
  package init(after offset: Int) { self.offset = offset }

  /// Appends the following lines.
  package mutating func append(_ next: NewLines) {
    count += next.count
    bytes += next.bytes
    jobs += next.jobs
    rejected += next.rejected
    webhook = next.webhook ?? webhook
    content = next.content ?? content
  }
}
