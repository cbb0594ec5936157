/// The limits of an owner's token, which apply in addition to the limits for all owners. Nil means no
/// additional limit.
package struct OwnerLimits: Sendable, Equatable {
  /// Slots in the queue (``QueueCapacity``).
  package var maxQueued: Int?
  /// The highest priority of the owner's jobs. Also the default if it is lower than `normal`.
  package var maxPriority: Priority?
  /// Bytes of images from origins per day (UTC).
  package var maxBytesPerDay: Int?

  /// No additional limits.
  package init(maxQueued: Int? = nil, maxPriority: Priority? = nil, maxBytesPerDay: Int? = nil) {
    (self.maxQueued, self.maxPriority, self.maxBytesPerDay) =
      (maxQueued, maxPriority, maxBytesPerDay)
  }
}

/// The approximate limits of the queue. A job takes one slot, and one more for each 4 kB of its stored
/// record.
package struct QueueCapacity: Sendable, Equatable, ExpressibleByIntegerLiteral {
  /// Slots for the jobs of all owners. ``FairShare`` divides them among owners.
  package var all: Int
  /// Slots for the jobs of the calling owner.
  package var ofOwner: Int
  /// Bytes of the records of all jobs, queued or finished. ``FairShare`` divides them among owners.
  package var recordBytes: Int

  /// - Parameters:
  ///   - ofOwner: Nil means no limit other than `all`.
  ///   - recordBytes: ``recordBytes``.
  package init(_ all: Int, ofOwner: Int? = nil, recordBytes: Int = .max) {
    (self.all, self.ofOwner, self.recordBytes) = (all, ofOwner ?? .max, recordBytes)
  }

  /// ``all`` and ``ofOwner`` as bounds of a ``FairShare``.
  package var slots: ShareBounds { ShareBounds(all, ofClient: ofOwner) }

  /// A queue with this number of slots and no limit per owner.
  package init(integerLiteral all: Int) { self.init(all) }

  /// No limits.
  package static let max = QueueCapacity(.max)
}
