/// A job to submit.
package struct NewJob: Sendable, Equatable {
  /// The source of the image, and how to fetch it.
  package var submission: Submission
  /// The job's priority in the queue.
  package var priority: Priority
  /// The owner's labels.
  package var tags: [String]

  package init(submission: Submission, priority: Priority = .normal, tags: [String] = []) {
    self.submission = submission
    self.priority = priority
    self.tags = tags
  }

  /// Approximate bytes of its record, without the defaults of its batch.
  package var keptBytes: Int {
    let defaults = submission.defaults
    let ownTags = defaults?.tags == tags ? [] : tags
    return 256 + submission.textBytes(beyond: defaults?.submission)
      + ownTags.reduce(0) { $0 + $1.utf8.count }
  }
}
