/// What keeps jobs, as the engine needs it: an adapter is one that fulfils each of these, and passes the suite in
/// Tests/StoreConformanceTests.
public typealias JobStore = JobQueue & JobRecords & BatchStore & ImageReferences & InstanceLeases
  & StoreNews & WebhookOutbox

/// Why a store could not do as asked.
public enum StoreError: Error, Sendable, Equatable {
  /// The disk has no room.
  case full
  /// The instance that asks holds no lease any more: it renews it, or registers anew.
  case leaseLost
  /// Anything else; `detail` is for the log.
  case unavailable(detail: String)
  /// What is kept of one job makes no sense, and won't at another time; `detail`, for the log, names the job.
  case unreadable(detail: String)
}
