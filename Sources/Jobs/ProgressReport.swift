/// What a worker tells of the job it carries: known in memory only until the job leaves `loading`.
public struct ProgressReport: Sendable, Equatable, Codable {
  /// How far the bytes have come.
  public var progress: Progress
  /// Requests made to the origin so far, over the job's whole life.
  public var attempts: Int
  /// How long each step took so far.
  public var timings: Timings
  /// Previews so far.
  public var previews: Int

  /// Where the job stands when a worker takes it.
  public init(of job: Job) { self.init(of: job, LoadProgress()) }

  /// What is shown of a job.
  package init(shownOf job: Job) {
    progress = job.progress
    attempts = job.attempts
    timings = job.timings
    previews = job.previews
  }

  /// What a load's progress means for one of its jobs, given as it was taken.
  package init(of job: Job, _ load: LoadProgress) {
    progress = load.bytes
    previews = load.previews
    attempts = job.attempts + load.requests
    timings = job.timings
    timings.take(load.timings)
  }
}

extension Timings {
  /// Takes over what `newer` knows.
  mutating func take(_ newer: Timings) {
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

/// How far a load has come.
package struct LoadProgress: Sendable, Equatable {
  /// How far the bytes have come.
  package var bytes = Progress()
  /// Requests sent to the origin.
  package var requests = 0
  /// How long each step took so far.
  package var timings = Timings()
  /// Previews of what came.
  package var previews = 0

  /// Nothing yet.
  package init() {}
}
