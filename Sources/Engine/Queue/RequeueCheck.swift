internal import Jobs
internal import Synchronization

/// Decides for an owner's finished jobs whether they are queued again.
///
/// Two reasons to refuse a job are known before the transaction: the owner's limit of bytes and its limit of
/// undelivered messages. They apply only to jobs that would otherwise be queued, which is known only inside the
/// transaction.
final class RequeueCheck: Sendable {
  private let moment: Timestamp
  private let network: NetworkState
  private let bytesSpent: JobsError?
  private let messagesFull: JobsError?
  private let allHaveWebhook: Bool
  private let refused = Mutex<[JobID: JobsError]>([:])

  /// - Parameters:
  ///   - bytesSpent: the error if the owner may fetch no more bytes today; nil otherwise.
  ///   - messagesFull: the error if the owner's limit of undelivered messages is reached; nil otherwise.
  ///   - allHaveWebhook: whether every job has a webhook, because its batch has one.
  init(
    at moment: Timestamp, from network: NetworkState, bytesSpent: JobsError?,
    messagesFull: JobsError?,
    allHaveWebhook: Bool
  ) {
    (self.moment, self.network) = (moment, network)
    (self.bytesSpent, self.messagesFull, self.allHaveWebhook) = (
      bytesSpent, messagesFull, allHaveWebhook
    )
  }

  /// The error of a job that was refused although it could have been queued; nil if there is none.
  var refusal: JobsError? { refused.withLock { $0.values.first } }

  /// Queues a finished job again. The store may call this more than once for a job.
  /// - Returns: false if the job stays as it is.
  func requeue(_ job: inout Job) -> Bool {
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
    return allHaveWebhook || job.submission.webhook != nil ? messagesFull : nil
  }
}
