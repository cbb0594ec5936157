/// A batch's name, of the same form as a job's.
public typealias BatchID = JobID

/// A list of jobs that came, and is told of, as one: a line of the list becomes a job.
///
/// It knows its jobs by number alone: what is counted of them is kept by the transactions that change them, so that
/// looking at a batch costs the same however many there are. The methods in `Batch+Moves.swift` are the only ways it
/// changes.
public struct Batch: Sendable, Equatable, Identifiable, Codable {
  /// Where it stands.
  public enum State: String, Sendable, CaseIterable, Codable {
    /// More lines may come.
    case receiving
    /// No more will; some jobs have not ended.
    case running
    /// All jobs have ended.
    case finished
    /// Its owner cancelled it: what had not ended by then ends as cancelled.
    case cancelled

    /// Whether nothing more happens to it by itself.
    public var isOver: Bool { self == .finished || self == .cancelled }
  }

  /// Its name, sorted by creation.
  public let id: BatchID
  /// Whose jobs they are.
  public let owner: Owner
  /// What its owner calls it.
  public let name: String?
  /// Labels that each of its jobs has besides its own.
  public let tags: [String]
  /// The members that its lines have unless they say otherwise: JSON, as the client gave it.
  public let defaults: String?
  /// Whether it receives until somebody closes it, however many uploads come to their end.
  public let isOpen: Bool
  /// The client's idempotency key.
  public let key: String?
  /// How long it is kept once it is over, if no job of it is kept for longer.
  public let retention: Duration
  /// When its first upload began.
  public let createdAt: Timestamp

  /// Whom to tell of its end.
  public package(set) var webhook: Webhook?

  /// Where it stands.
  public package(set) var state = State.receiving
  /// Lines that are durable: each is a job, was rejected, or is none.
  public package(set) var received = 0
  /// What has become of its jobs.
  public package(set) var counts = BatchCounts()
  /// Grows with every change.
  public package(set) var revision = 1
  /// When the last line came, or an upload began.
  public package(set) var receivedAt: Timestamp
  /// When the last of its jobs ended.
  public package(set) var finishedAt: Timestamp?
  /// When it will be forgotten.
  public package(set) var expiresAt: Timestamp?
  /// Whether jobs that had not ended when it was cancelled are still to be ended.
  public package(set) var isCancelling = false
  /// What a repetition of its idempotency key is compared with: all its lines, or the first request's where it is open. Nil:
  /// it has no key.
  public package(set) var content: BatchContent?
  /// Whether its owner wants nothing of it to be left: it is as good as gone.
  public package(set) var isPurged = false
  /// When the last of its jobs expires, as far as they have ended.
  package var lastExpiry: Timestamp?
  /// How many of its jobs end a second.
  package var pace: Pace

  /// A batch without lines yet.
  public init(
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

/// Where a job of a batch stands in it.
public struct BatchPlace: Sendable, Hashable, Codable {
  /// The batch.
  public let id: BatchID
  /// The line that it was, counted from 1 over all uploads.
  public let line: Int

  /// That line.
  public init(id: BatchID, line: Int) { (self.id, self.line) = (id, line) }
}

/// What has become of a batch's lines.
public struct BatchCounts: Sendable, Equatable, Codable {
  private var queued = 0
  private var loading = 0
  private var success = 0
  private var failure = 0
  private var cancelled = 0
  /// Lines that no job could be made of.
  public package(set) var rejected = 0
  /// Bytes of the images, equal ones each counted.
  public package(set) var bytes = 0
  private var failures: [String: Int] = [:]

  /// None yet.
  public init() {}

  /// Jobs in a phase. One that is forgotten stays counted in the phase that it had ended in.
  public package(set) subscript(phase: Phase) -> Int {
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

  /// Jobs that have not ended.
  public var unfinished: Int { queued + loading }
  /// All jobs that there were, and lines that were meant to be some.
  public var all: Int { queued + loading + success + failure + cancelled + rejected }

  /// Failed jobs by why they did.
  public var codes: [(code: FailureCode, count: Int)] {
    FailureCode.allCases.compactMap { code in
      failures[code.rawValue].flatMap { $0 > 0 ? (code, $0) : nil }
    }
  }

  mutating func add(_ count: Int, of code: FailureCode) {
    let sum = failures[code.rawValue, default: 0] + count
    failures[code.rawValue] = sum == 0 ? nil : sum
  }
}

/// How many things happen a second, lately: within the last five to ten seconds.
public struct Pace: Sendable, Equatable, Codable {
  private let since: Timestamp
  /// Where the present five seconds began.
  private var start: Timestamp
  private var current = 0
  /// In the five seconds before.
  private var last = 0
  private static let window = Duration.seconds(5)

  /// Where only the sum is known.
  private var average: Double?

  init(at moment: Timestamp) { (start, since) = (moment, moment) }

  /// So many in that time: what is told where the latest aren't known apart.
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

  /// The number a second as of that moment.
  func rate(at moment: Timestamp) -> Double {
    if let average { return average }
    var pace = self
    pace.roll(to: moment)
    let seen = min(moment - since, Self.window + (moment - pace.start))
    return Double(pace.current + pace.last) / max(1, seen.inSeconds)
  }
}

/// A line that no job could be made of.
public struct RejectedLine: Sendable, Equatable, Codable {
  /// Counted from 1 over all uploads.
  public let line: Int
  /// Its URL, where it has one that can be told.
  public let url: String?
  /// What a request with such a job is answered with: the contract's code and why.
  public let code: String
  /// For people.
  public let detail: String

  /// A line.
  public init(line: Int, url: String?, code: String, detail: String) {
    (self.line, self.url, self.code, self.detail) = (line, url, code, detail)
  }

  /// What is kept of it, about.
  package var keptBytes: Int { 128 + (url?.utf8.count ?? 0) + detail.utf8.count }
}
