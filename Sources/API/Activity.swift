internal import HTTP
internal import HTTPTypes
public import Jobs

/// What the service did in its last quarter of an hour, in equal steps of time.
public struct Activity: Sendable, Equatable {
  /// One step.
  public struct Step: Sendable, Equatable {
    /// Jobs in these phases at its end.
    public var queued = 0
    public var loading = 0
    /// Jobs that ended so within it.
    public var succeeded = 0
    public var failed = 0

    /// Nothing happened.
    public init() {}
  }

  /// How long a step is, in seconds.
  public static let interval = 5
  /// How many are kept at the most.
  public static let most = 180

  /// When the last step ended.
  public var end: Timestamp
  /// The oldest first; fewer than ``most`` where the service began since.
  public var steps: [Step]

  public init(end: Timestamp, steps: [Step] = []) { (self.end, self.steps) = (end, steps) }

  /// A column a figure: half as long as an object a step.
  var json: [UInt8] {
    var writer = JSONWriter(capacity: 4096)
    writer.object { writer in
      writer.key("interval")
      writer.int(Self.interval)
      writer.key("end")
      writer.string(end.description)
      let columns: [(StaticString, KeyPath<Step, Int>)] = [
        ("queued", \.queued), ("loading", \.loading), ("succeeded", \.succeeded),
        ("failed", \.failed),
      ]
      for (name, path) in columns {
        writer.key(name)
        writer.array(steps) { $0.int($1[keyPath: path]) }
      }
    }
    return writer.bytes
  }
}
