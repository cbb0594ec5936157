/// The job store that the engine needs. An adapter implements each of these protocols and passes the tests in
/// Tests/StoreTests/Conformance.
package typealias JobStore = JobQueue & JobRecords & BatchStore & ImageReferences & InstanceLeases
  & InstanceEvents & WebhookOutbox

/// Why a call to a store failed.
package enum StoreError: Error, Sendable, Equatable {
  /// The disk is full.
  case full
  /// The calling instance's lease has ended. It has to renew the lease or register again.
  case leaseLost
  /// Any other failure; `detail` is for the log.
  case unavailable(detail: String)
  /// The record of one job cannot be decoded, now or later. `detail`, for the log, names the job.
  case unreadable(detail: String)
}

extension StoreError: CustomStringConvertible {
  /// For the operator's log.
  package var description: String {
    switch self {
    case .full: "no space is left"
    case .leaseLost: "the lease has ended"
    case .unavailable(let detail), .unreadable(let detail): detail
    }
  }
}
