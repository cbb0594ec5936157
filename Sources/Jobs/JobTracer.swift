/// A part of a job's way, as whoever traces it is told.
public struct JobStage: Sendable, Equatable {
  /// In the order of the way.
  public enum Name: String, Sendable, CaseIterable {
    /// From being accepted until a worker took it first.
    case queued
    /// From the request to the origin until its body's last byte.
    case fetch
    /// From the image's first byte until it was decoded to its end; much of it beside `fetch`.
    case decode
    /// What its jobs want made of it.
    case variants
    /// Until it is where its job wants it brought.
    case deliver
    /// Until its end is durable.
    case store
  }

  /// Which part.
  public var name: Name
  /// From its beginning to the job's end.
  public var before: Duration
  /// How long it took.
  public var took: Duration

  /// A part.
  public init(_ name: Name, before: Duration, took: Duration) {
    (self.name, self.before, self.took) = (name, before, took)
  }
}

/// Hears of each job's end, as it has just become durable. It is called on any thread, and returns at once.
public protocol JobTracer: Sendable {
  /// - Parameter stages: of the last try; none where there was none.
  func ended(_ job: Job, _ stages: [JobStage])
}
