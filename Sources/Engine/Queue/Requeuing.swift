internal import Jobs
internal import Synchronization

/// Decides for an owner's finished jobs whether they are queued again.
///
/// Two reasons to refuse a job are known before the transaction: the owner's limit of bytes and its limit of
/// undelivered messages. They apply only to jobs that would otherwise be queued, which is known only inside the
/// transaction.
final class Requeuing: Sendable {
  private let moment: Timestamp
  private let network: NetworkState
  private let bytesSpent: JobsError?
  private let untold: JobsError?
  private let areAllTold: Bool
  private let refused = Mutex<[JobID: JobsError]>([:])

  /// - Parameters:
  ///   - bytesSpent: the error if the owner may fetch no more bytes today; nil otherwise.
  ///   - untold: the error if the owner's limit of undelivered messages is reached; nil otherwise.
  ///   - areAllTold: whether every job has a webhook, because its batch has one.
  init(
    at moment: Timestamp, from network: NetworkState, bytesSpent: JobsError?, untold: JobsError?,
    areAllTold: Bool
  ) {
    (self.moment, self.network) = (moment, network)
    (self.bytesSpent, self.untold, self.areAllTold) = (bytesSpent, untold, areAllTold)
  }

  /// The error of a job that was refused although it could have been queued; nil if there is none.
  var refusal: JobsError? { refused.withLock { $0.values.first } }

  /// Queues a finished job again. The store may call this more than once for a job.
  /// - Returns: false if the job stays as it is.
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
