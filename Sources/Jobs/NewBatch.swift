/// A batch to begin.
public struct NewBatch: Sendable, Equatable {
  /// What its owner calls it.
  public var name: String?
  /// Labels that each of its jobs has besides its own.
  public var tags: [String]
  /// ``Batch/defaults``.
  public var defaults: String?
  /// ``Batch/isOpen``.
  public var isOpen: Bool
  /// Whom to tell of its end.
  public var webhook: Webhook?
  /// ``Batch/content`` before its first line.
  public var content: BatchContent?

  /// A batch to begin.
  public init(
    name: String? = nil, tags: [String] = [], defaults: String? = nil, isOpen: Bool = false,
    webhook: Webhook? = nil, content: BatchContent? = nil
  ) {
    (self.name, self.tags, self.defaults, self.isOpen) = (name, tags, defaults, isOpen)
    (self.webhook, self.content) = (webhook, content)
  }
}

/// What came of a batch to begin.
public enum BegunBatch: Sendable {
  /// It was begun.
  case new(Batch)
  /// An earlier request with the same idempotency key began it: as it is.
  case repeated(Batch)
  /// An earlier one did, and it is gone: it expired, or was purged.
  case gone(BatchID)
}

/// Lines of an upload that follow each other, as they came.
public struct NewLines: Sendable {
  /// A line that is a job.
  public struct Job: Sendable {
    /// Its number.
    public let line: Int
    /// What it asks for.
    public let job: NewJob

    /// A line.
    public init(line: Int, job: NewJob) { (self.line, self.job) = (line, job) }
  }

  /// How many came before them.
  public let offset: Int
  /// How many there are, with those that are neither jobs nor rejected.
  public var count = 0
  /// What is kept of them, about.
  public var bytes = 0
  /// Those that are jobs.
  public var jobs: [Job] = []
  /// Those of which none could be made.
  public var rejected: [RejectedLine] = []
  /// Whom to tell of the batch's end, where they say so.
  public var webhook: Webhook?
  /// ``Batch/content`` with these lines; nil: they don't change it.
  public var content: BatchContent?

  /// Whether they say nothing.
  public var isEmpty: Bool {
    count == 0 && webhook == nil && content?.isComplete != true
  }

  /// None yet, after so many.
  public init(after offset: Int) { self.offset = offset }

  /// Adds those that follow.
  public mutating func append(_ next: NewLines) {
    count += next.count
    bytes += next.bytes
    jobs += next.jobs
    rejected += next.rejected
    webhook = next.webhook ?? webhook
    content = next.content ?? content
  }
}
