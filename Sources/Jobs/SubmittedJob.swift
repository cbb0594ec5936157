/// A job in the response to a submission.
public struct SubmittedJob: Sendable {
  public let id: JobID
  /// The present state of the job. Nil if an earlier submission with the same idempotency key created the
  /// job, and it has expired or been purged.
  public let snapshot: JobSnapshot?

  /// An existing job.
  public init(_ snapshot: JobSnapshot) { (id, self.snapshot) = (snapshot.job.id, snapshot) }
  /// A job that expired or was purged.
  public init(gone id: JobID) { (self.id, snapshot) = (id, nil) }
}
