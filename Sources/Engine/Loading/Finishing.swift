internal import Jobs
internal import Logging

/// The word to the metrics, the log and the background that a job has ended. Whoever ends one says so here, once: when
/// the store has made the change that ended it.
struct Finishing: Sendable {
  let crew: Crew

  /// A job has become success, failure or cancelled.
  func tell(_ job: Job) {
    crew.metrics.finished(job)
    // The network changed while it was under way.
    if job.image?.variant == .lowData, crew.network.firstCandidate(of: job.submission) == .regular {
      crew.background.replaceLowData()
    }
    crew.log.info("job finished", metadata: metadata(of: job))
  }

  /// A job that was not done is forgotten: to whoever counts it ends as a cancelled one.
  func tellForgotten(_ job: Job) {
    guard !job.phase.isFinished else { return }
    var job = job
    if job.cancel(at: crew.now(), keptFor: .zero) { tell(job) }
  }

  /// A success has its regular image now: it ended before, and isn't counted again.
  func tellReplaced(_ job: Job) { crew.log.info("image replaced", metadata: metadata(of: job)) }

  private func metadata(of job: Job) -> Logger.Metadata {
    var metadata: Logger.Metadata = [
      "job": "\(job.id)", "phase": "\(job.phase.rawValue)", "bytes": "\(job.progress.completed)",
      "attempts": "\(job.attempts)",
    ]
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
