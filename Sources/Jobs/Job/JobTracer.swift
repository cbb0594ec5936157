/// A stage of a job, as reported to a tracer.
package struct JobStage: Sendable, Equatable {
  /// The stages in order.
  package enum Name: String, Sendable, CaseIterable {
    /// From acceptance to the first start by a worker.
    case queued
    /// From the request to the last byte of the body.
    case fetch
    /// From the first byte of the image to the end of the decode. It overlaps `fetch`.
    case decode
    /// Rendering of the requested variants.
    case variants
    /// Upload to the requested destinations.
    case deliver
    /// Saving the result durably.
    case store
  }

  package var name: Name
  /// Time from the start of the stage to the end of the job.
  package var before: Duration
  /// The duration of the stage.
  package var duration: Duration

  package init(_ name: Name, before: Duration, took: Duration) {
    (self.name, self.before, self.duration) = (name, before, took)
  }
}

/// Receives each finished job, after its end is durable. Called on any thread; must return immediately.
package protocol JobTracer: Sendable {
  /// - Parameter stages: The stages of the last try; empty if there was no try.
  func recordEnd(of job: Job, stages: [JobStage])
}
