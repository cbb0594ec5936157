internal import Jobs
internal import Logging

/// The one place where a job's new state becomes known, once the store has it: to readers and subscribers, and where
/// the job has ended, in the log and the metrics.
///
/// In comes a job as the store has it; out go its snapshot, its change for the subscribers, a log line and counts. Runs
/// on the caller's thread and never waits: ``Subscribers/run()`` delivers on Swift's threads.
struct JobPublisher: Sendable {
  let snapshots: JobSnapshots
  let metrics: JobMetrics
  /// Nil: nobody traces.
  let tracer: (any JobTracer)?
  let log: Logger
  /// Called when a job has ended of whose end somebody is to be told.
  let onMessage: @Sendable () -> Void
  /// Called when a job has ended with its low-data image.
  let onLowData: @Sendable (Job) -> Void

  /// - Parameters:
  ///   - hasEnded: whether it became success, failure or cancelled by this change.
  ///   - stages: of its last try, where somebody traces.
  /// - Returns: the newest state; nil when the job was purged.
  @discardableResult
  func publish(_ job: Job, hasEnded: Bool, _ stages: [JobStage] = []) -> JobSnapshot? {
    if hasEnded { recordEnd(of: job, stages) }
    return snapshots.publish(job)
  }

  /// An unfinished job was purged: in the log and the metrics it ends as a cancelled one.
  func recordPurge(of job: Job, at moment: Timestamp) {
    var job = job
    if job.cancel(at: moment, keptFor: .zero) { recordEnd(of: job) }
  }

  /// The regular image of a success took the place of the low-data one. The job ended before, and isn't counted again.
  func publishReplacedImage(of job: Job) {
    snapshots.publish(job)
    log.info("image replaced", metadata: metadata(of: job))
  }

  private func recordEnd(of job: Job, _ stages: [JobStage] = []) {
    metrics.finished(job)
    tracer?.ended(job, stages)
    if job.image?.variant == .lowData { onLowData(job) }
    if job.submission.webhook != nil { onMessage() }
    log.info("job finished", metadata: metadata(of: job))
  }

  private func metadata(of job: Job) -> Logger.Metadata {
    var metadata: Logger.Metadata = [
      "job": "\(job.id)", "phase": "\(job.phase.rawValue)", "bytes": "\(job.progress.completed)",
      "attempts": "\(job.attempts)",
    ]
    if job.owner != .anonymous { metadata["owner"] = "\(job.owner.name)" }
    if let batch = job.batch {
      metadata["batch"] = "\(batch.id)"
      metadata["line"] = "\(batch.line)"
    }
    if let url = job.submission.url(of: .regular) { metadata["host"] = "\(url.authority)" }
    if let cache = job.cache { metadata["cache"] = "\(cache.status.rawValue)" }
    if let failure = job.failure {
      metadata["code"] = "\(failure.code.rawValue)"
      metadata["error"] = "\(failure)"
    }
    if let started = job.startedAt, let finished = job.finishedAt {
      metadata["seconds"] = "\((finished - started).toldInSeconds)"
    }
    return metadata
  }
}
