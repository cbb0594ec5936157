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
  package mutating func countJob(of owner: Owner) { shares.acquireUnchecked(1, for: owner) }

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
