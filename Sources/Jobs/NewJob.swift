/// A job to submit: what a client asked for, checked, before it has an id.
public struct NewJob: Sendable, Equatable {
  /// What to obtain and how.
  public var submission: Submission
  /// How soon its turn comes.
  public var priority: Priority
  /// The owner's labels.
  public var tags: [String]

  /// A job of normal priority without labels, unless said.
  public init(submission: Submission, priority: Priority = .normal, tags: [String] = []) {
    self.submission = submission
    self.priority = priority
    self.tags = tags
  }
}
