/// A job that a submission is answered with.
public struct SubmittedJob: Sendable {
  /// Its name.
  public let id: JobID
  /// The job as it is; nil where an earlier submission under the same idempotency key made it, and it is gone: it
  /// expired, or was purged.
  public let snapshot: JobSnapshot?

  /// A job that is there.
  public init(_ snapshot: JobSnapshot) { (id, self.snapshot) = (snapshot.job.id, snapshot) }
  /// A job that is gone.
  public init(gone id: JobID) { (self.id, snapshot) = (id, nil) }
}
