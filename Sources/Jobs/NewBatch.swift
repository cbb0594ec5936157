/// A batch to create.
public struct NewBatch: Sendable, Equatable {
  /// A name that the owner chose.
  public var name: String?
  /// Tags that each job of the batch has in addition to its own.
  public var tags: [String]
  /// ``Batch/defaults``.
  public var defaults: String?
  /// ``Batch/isOpen``.
  public var isOpen: Bool
  /// The receiver of a webhook message when the batch is finished.
  public var webhook: Webhook?
  /// ``Batch/content`` before the first line.
  public var content: BatchContent?

  public init(
    name: String? = nil, tags: [String] = [], defaults: String? = nil, isOpen: Bool = false,
    webhook: Webhook? = nil, content: BatchContent? = nil
  ) {
    (self.name, self.tags, self.defaults, self.isOpen) = (name, tags, defaults, isOpen)
    (self.webhook, self.content) = (webhook, content)
  }
}

/// The result of creating a batch.
public enum BegunBatch: Sendable {
  /// The batch was created.
  case new(Batch)
  /// An earlier request with the same idempotency key created the batch. The value is its present state.
  case repeated(Batch)
  /// An earlier request created the batch, which has since expired or been purged.
  case gone(BatchID)
}

/// Consecutive lines of an upload.
public struct NewLines: Sendable {
  /// A line that is a job.
  public struct Job: Sendable {
    /// The line number.
    public let line: Int
    public let job: NewJob

    public init(line: Int, job: NewJob) { (self.line, self.job) = (line, job) }
  }

  /// The number of lines before these.
  public let offset: Int
  /// The number of lines, including lines that are neither jobs nor rejected.
  public var count = 0
  /// Approximate bytes of their stored records.
  public var bytes = 0
  /// The lines that are jobs.
  public var jobs: [Job] = []
  /// The lines that are not valid jobs.
  public var rejected: [RejectedLine] = []
  /// The webhook of the batch, if these lines set it.
  public var webhook: Webhook?
  /// ``Batch/content`` after these lines; nil if they do not change it.
  public var content: BatchContent?

  /// Whether the lines change nothing.
  public var isEmpty: Bool {
    count == 0 && webhook == nil && content?.isComplete != true
  }

  /// No lines, after `offset` earlier lines.
  public init(after offset: Int) { self.offset = offset }

  /// Appends the following lines.
  public mutating func append(_ next: NewLines) {
    count += next.count
    bytes += next.bytes
    jobs += next.jobs
    rejected += next.rejected
    webhook = next.webhook ?? webhook
    content = next.content ?? content
  }
}
