internal import Metrics

/// The centre's figures, as `GET /metrics` shows them.
struct JobMetrics: Sendable {
  private let submitted = Counter(label: "imagefetch_jobs_submitted_total")
  private let running = Gauge(label: "imagefetch_jobs_running")
  private let oldest = Gauge(label: "imagefetch_oldest_running_job_seconds")
  private let images = Gauge(label: "imagefetch_images")
  private let imageBytes = Gauge(label: "imagefetch_image_bytes")
  private let decode = Timer(label: "imagefetch_decode_seconds")
  private let duration = Timer(label: "imagefetch_job_seconds")

  func submitted(_ count: Int) { submitted.increment(by: Int64(count)) }

  func finished(_ job: Job) {
    let code = job.failure?.code.rawValue ?? ""
    Counter(
      label: "imagefetch_jobs_finished_total",
      dimensions: [("phase", job.phase.rawValue), ("code", code)]
    ).increment()
    if let time = job.timings.decode { decode.record(duration: time) }
    if let started = job.startedAt, let finished = job.finishedAt {
      duration.record(duration: finished - started)
    }
  }

  /// Sets the gauges: called when somebody is about to read them.
  func observe(_ counts: StoreCounts, running jobs: RunningJobs, at moment: Timestamp) {
    for phase in Phase.allCases {
      Gauge(label: "imagefetch_jobs", dimensions: [("phase", phase.rawValue)])
        .record(counts.jobs[phase] ?? 0)
    }
    running.record(jobs.count)
    oldest.record(jobs.oldest.map { (moment - $0).inSeconds } ?? 0)
    images.record(counts.images)
    imageBytes.record(counts.imageBytes)
  }
}
