internal import Jobs
internal import Synchronization

/// Queues finished jobs of an owner again. What forbids it, whatever room the queue has, is known beforehand; it counts
/// only where a job would have been queued, which the store tells as it makes the change.
final class Requeuing: Sendable {
  private let moment: Timestamp
  private let network: NetworkState
  private let bytesSpent: JobsError?
  private let untold: JobsError?
  private let areAllTold: Bool
  private let refused = Mutex<[JobID: JobsError]>([:])

  /// - Parameters:
  ///   - bytesSpent: why nothing more may come from origins today; nil: it may.
  ///   - untold: why no more ends may be told; nil: they may.
  ///   - areAllTold: whether somebody is told of the end of all of them, not only of those that say so themselves.
  init(
    at moment: Timestamp, from network: NetworkState, bytesSpent: JobsError?, untold: JobsError?,
    areAllTold: Bool
  ) {
    (self.moment, self.network) = (moment, network)
    (self.bytesSpent, self.untold, self.areAllTold) = (bytesSpent, untold, areAllTold)
  }

  /// Why a job was left alone that would otherwise have been queued; nil: there is none.
  var refusal: JobsError? { refused.withLock { $0.values.first } }

  /// Queues a finished job again; the store may ask for it more than once.
  /// - Returns: false where there is nothing to do, or it may not be.
  func queue(_ job: inout Job) -> Bool {
    var queued = job
    let first = network.firstCandidate(of: job.submission)
    let isWanted = queued.fetchAgain(at: moment, from: first)
    let reason = isWanted ? self.reason(against: job) : nil
    refused.withLock { [id = job.id] in $0[id] = reason }
    guard isWanted, reason == nil else { return false }
    job = queued
    return true
  }

  private func reason(against job: Job) -> JobsError? {
    if let bytesSpent, case .url = job.submission.source { return bytesSpent }
    return areAllTold || job.submission.webhook != nil ? untold : nil
  }
}
