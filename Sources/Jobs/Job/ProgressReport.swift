/// A worker's progress with one job. Known in memory only until the job leaves `loading`.
package struct ProgressReport: Sendable, Equatable, Codable {
  /// The number of bytes received.
  package var progress: Progress
  /// Requests sent to the origin over the job's whole life.
  package var attempts: Int
  /// Duration of each step so far.
  package var timings: Timings
  /// The number of previews so far.
  package var previews: Int

  /// The progress of a job that a worker has just started.
  package init(of job: Job) { self.init(of: job, LoadProgress()) }

  /// The progress that clients see of a job.
  package init(shownOf job: Job) {
    progress = job.progress
    attempts = job.attempts
    timings = job.timings
    previews = job.previews
  }

  /// The progress of a load as seen by one of its jobs, which is given as it was claimed.
  package init(of job: Job, _ load: LoadProgress) {
    progress = load.bytes
    previews = load.previews
    attempts = job.attempts + load.requests
    timings = job.timings
    timings.merge(load.timings)
  }
}

extension Timings {
  /// Replaces each duration that `newer` has.
  mutating func merge(_ newer: Timings) {
    queued = newer.queued ?? queued
    dns = newer.dns ?? dns
    connect = newer.connect ?? connect
    tls = newer.tls ?? tls
    firstByte = newer.firstByte ?? firstByte
    body = newer.body ?? body
    fetch = newer.fetch ?? fetch
    decode = newer.decode ?? decode
  }
}

/// The progress of a load.
package struct LoadProgress: Sendable, Equatable {
  /// The number of bytes received.
  package var bytes = Progress()
  /// Requests sent to the origin.
  package var requests = 0
  /// Duration of each step so far.
  package var timings = Timings()
  /// The number of previews so far.
  package var previews = 0

  package init() {}
}
