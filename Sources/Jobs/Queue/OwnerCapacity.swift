/// The owners that may use one more of some slots now: an instance's workers, or its slots for webhooks. A snapshot
/// of a ``FairShare`` for a store.
package struct OwnerCapacity: Sendable {
  private var shares: FairShare<Owner>
  private let bounds: ShareBounds
  private let moment: Timestamp

  /// - Parameter shares: The slots in use, by owner.
  package init(_ shares: FairShare<Owner>, within bounds: ShareBounds, at moment: Timestamp) {
    (self.shares, self.bounds, self.moment) = (shares, bounds, moment)
  }

  /// Divides workers among owners. A quarter is reserved for owners that have none.
  ///
  /// - Parameters:
  ///   - workers: The busy workers, by the owner of their job.
  ///   - count: The number of all workers.
  package init(_ workers: FairShare<Owner>, of count: Int, at moment: Timestamp) {
    self.init(workers, within: .keepingQuarter(of: count), at: moment)
  }

  /// No limits.
  package static var unlimited: Self {
    Self(FairShare(), within: ShareBounds(.max), at: Timestamp(milliseconds: 0))
  }

  /// Whether the owner may use one more slot.
  package func hasCapacity(for owner: Owner) -> Bool {
    shares.available(for: owner, within: bounds, at: moment) > 0
  }

  /// Counts one more claimed job of the owner.
  mutating func countJob(of owner: Owner) { shares.acquireUnchecked(1, for: owner) }

  /// Counts one more slot if the owner may use one; returns whether it may.
  package mutating func acquireSlot(for owner: Owner) -> Bool {
    guard hasCapacity(for: owner) else { return false }
    shares.acquireUnchecked(1, for: owner)
    return true
  }

  /// The owners that use slots and may have no more. Every other owner may have one more as long as a slot is
  /// free.
  package var full: Set<Owner> { Set(shares.clients.filter { !hasCapacity(for: $0) }) }
}

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
  var all: Int
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

/// The number of transfers that may begin now, by origin.
package struct OriginCapacity: Sendable, Equatable {
  /// The number for an origin that is not in ``exceptions``.
  package var usual: Int
  /// The numbers for origins that have transfers in progress, exceeded their rate, or are paused.
  package var exceptions: [String: Int]
  /// Limits over all instances that share the store; nil if there are none.
  package var overall: Overall?

  /// The limits of an origin over all instances, and this instance's transfers.
  package struct Overall: Sendable, Equatable {
    /// The limit of concurrent transfers to one origin.
    var transfers: Int
    /// The limit of new requests per second to one origin; 0 means no limit.
    package var requestsPerSecond: Double
    /// This instance's transfers, by origin.
    var own: [String: Int]

    package init(
      transfers: Int = .max, requestsPerSecond: Double = 0, own: [String: Int] = [:]
    ) {
      (self.transfers, self.requestsPerSecond, self.own) = (transfers, requestsPerSecond, own)
    }

    /// Returns how many more transfers may begin.
    /// - Parameter others: The number of other instances' transfers to the origin.
    func capacity(at origin: String, besides others: Int) -> Int {
      transfers == .max ? .max : transfers - others - own[origin, default: 0]
    }
  }

  package init(usual: Int, exceptions: [String: Int] = [:], overall: Overall? = nil) {
    self.usual = usual
    self.exceptions = exceptions
    self.overall = overall
  }

  /// No limits.
  package static let unlimited = OriginCapacity(usual: .max)

  /// The number of transfers to this origin that may begin. Unlimited for a job without an origin.
  package subscript(origin: String?) -> Int {
    guard let origin else { return .max }
    return exceptions[origin] ?? usual
  }

  /// Counts one more transfer.
  package mutating func countTransfer(to origin: String?) {
    guard let origin else { return }
    let room = self[origin]
    // A paused origin has no limit, because its jobs send no request.
    guard room < .max else { return }
    exceptions[origin] = room - 1
    overall?.own[origin, default: 0] += 1
  }

  /// Returns how many transfers to the origin may begin, with regard to other instances' transfers and the
  /// rate.
  /// - Parameter mayRequest: Whether the rate over all instances allows a request now.
  package func remaining(at origin: String, besides others: Int, mayRequest: Bool) -> Int {
    let room = self[origin]
    guard let overall, room < .max else { return room }
    let left = min(room, overall.capacity(at: origin, besides: others))
    guard overall.requestsPerSecond > 0 else { return left }
    return mayRequest ? min(left, 1) : 0
  }
}
