/// What an owner's token lets it have at the most, beside what everybody may; nil: no less.
public struct OwnerLimits: Sendable, Equatable {
  /// Places of the queue (``QueueCapacity``).
  public var maxQueued: Int?
  /// Of its jobs. What says nothing has this one where it is lower than `normal`.
  public var maxPriority: Priority?
  /// Bytes of images that came from origins in a day, by UTC.
  public var maxBytesPerDay: Int?

  /// No less than everybody.
  public init(maxQueued: Int? = nil, maxPriority: Priority? = nil, maxBytesPerDay: Int? = nil) {
    (self.maxQueued, self.maxPriority, self.maxBytesPerDay) =
      (maxQueued, maxPriority, maxBytesPerDay)
  }
}

/// How many places the queue has, about. A job takes one, and one more for each 4 kB of what the store keeps of it.
public struct QueueCapacity: Sendable, Equatable, ExpressibleByIntegerLiteral {
  /// For everybody's jobs, as ``SharedCapacity`` shares them among owners.
  public var all: Int
  /// For the owner's who asks.
  public var ofOwner: Int
  /// Bytes of the records of all jobs, queued or finished, as ``SharedCapacity`` shares them among owners.
  public var recordBytes: Int

  /// - Parameters:
  ///   - ofOwner: nil: no fewer than there are.
  ///   - recordBytes: ``recordBytes``.
  public init(_ all: Int, ofOwner: Int? = nil, recordBytes: Int = .max) {
    (self.all, self.ofOwner, self.recordBytes) = (all, ofOwner ?? .max, recordBytes)
  }

  /// The same for each owner.
  public init(integerLiteral all: Int) { self.init(all) }

  /// Room for all that comes.
  public static let max = QueueCapacity(.max)
}
