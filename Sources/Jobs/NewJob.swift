/// A job to submit.
public struct NewJob: Sendable, Equatable {
  /// What to obtain and how.
  public var submission: Submission
  /// How soon its turn comes.
  public var priority: Priority
  /// The owner's labels.
  public var tags: [String]

  /// A job to submit.
  public init(submission: Submission, priority: Priority = .normal, tags: [String] = []) {
    self.submission = submission
    self.priority = priority
    self.tags = tags
  }

  /// What is kept of it, about, in bytes: as much for each of those that were made alike.
  package var keptBytes: Int { 256 + submission.textBytes + tags.reduce(0) { $0 + $1.utf8.count } }
}
