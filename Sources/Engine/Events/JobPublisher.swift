internal import Jobs
internal import Logging

/// Makes a job's new state known once the store has it. Readers and subscribers get the state. If the job has ended,
/// the end goes to the log, the metrics and the trace. No other code does this.
///
/// Input: a job as the store has it. Output: its snapshot, its change for the subscribers, a log line and counts. Runs
/// on the caller's thread and never waits; ``Subscribers/run()`` delivers on Swift's threads.
struct JobPublisher: Sendable {
  let snapshots: JobSnapshots
  let metrics: JobMetrics
  /// Nil if tracing is off.
  let tracer: (any JobTracer)?
  let log: Logger
  /// Called when a job with a webhook has ended.
  let onMessage: @Sendable () -> Void
  /// Called when a job has ended with its low-data image.
  let onLowData: @Sendable (Job) -> Void

  /// - Parameters:
  ///   - hasEnded: whether this change ended the job, as success, failure or cancelled.
  ///   - stages: the stages of its last try, if tracing is on.
  /// - Returns: the newest state; nil if the job was purged.
  @discardableResult
  func publish(_ job: Job, hasEnded: Bool, _ stages: [JobStage] = []) -> JobSnapshot? {
    if hasEnded { recordEnd(of: job, stages) }
    return snapshots.publish(job)
  }

  /// Records the purge of a job. An unfinished job is logged and counted as cancelled.
  func recordPurge(of job: Job, at moment: Timestamp) {
    var job = job
    if job.cancel(at: moment, keptFor: .zero) { recordEnd(of: job) }
  }

  /// Publishes a finished job whose regular image replaced the low-data one. The job is not counted again.
  func publishReplacedImage(of job: Job) {
    snapshots.publish(job)
    log.info("image replaced", metadata: metadata(of: job))
  }

  private func recordEnd(of job: Job, _ stages: [JobStage] = []) {
    metrics.finished(job)
    tracer?.recordEnd(of: job, stages: stages)
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
      metadata["seconds"] = "\((finished - started).roundedSeconds)"
    }
    return metadata
  }
}
