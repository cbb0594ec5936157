/// A job in the response to a submission.
package struct SubmittedJob: Sendable {
  package let id: JobID
  /// The present state of the job. Nil if an earlier submission with the same idempotency key created the
  /// job, and it has expired or been purged.
  package let snapshot: JobSnapshot?

  /// An existing job.
  package init(_ snapshot: JobSnapshot) { (id, self.snapshot) = (snapshot.job.id, snapshot) }
  /// A job that expired or was purged.
  package init(gone id: JobID) { (self.id, snapshot) = (id, nil) }
}
