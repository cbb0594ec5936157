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
