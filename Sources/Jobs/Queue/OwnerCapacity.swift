/// The owners that may use one more of some slots now: an instance's workers, or its slots for webhooks. A snapshot
/// of a ``FairShare`` for a store.
package struct OwnerCapacity<Name: Hashable & Sendable>: Sendable {
  private var shares: FairShare<Name>
  private let bounds: ShareBounds
  private let moment: Timestamp

  /// - Parameter shares: The slots in use, by owner.
  package init(_ shares: FairShare<Name>, within bounds: ShareBounds, at moment: Timestamp) {
    (self.shares, self.bounds, self.moment) = (shares, bounds, moment)
  }

  /// Divides workers among owners. A quarter is reserved for owners that have none.
  ///
  /// - Parameters:
  ///   - workers: The busy workers, by the owner of their job.
  ///   - count: The number of all workers.
  package init(_ workers: FairShare<Name>, of count: Int, at moment: Timestamp) {
    self.init(workers, within: .keepingQuarter(of: count), at: moment)
  }

  /// No limits.
  package static var unlimited: Self {
    Self(FairShare(), within: ShareBounds(.max), at: Timestamp(milliseconds: 0))
  }

  /// Whether the owner may use one more slot.
  package func hasCapacity(for owner: Name) -> Bool {
    shares.available(for: owner, within: bounds, at: moment) > 0
  }

  /// Counts one more claimed job of the owner.
  package mutating func countJob(of owner: Name) { shares.acquireUnchecked(1, for: owner) }

  /// Counts one more slot if the owner may use one; returns whether it may.
  package mutating func acquireSlot(for owner: Name) -> Bool {
    guard hasCapacity(for: owner) else { return false }
    shares.acquireUnchecked(1, for: owner)
    return true
  }

  /// The owners that use slots and may have no more. Every other owner may have one more as long as a slot is
  /// free.
  package var full: Set<Name> { Set(shares.clients.filter { !hasCapacity(for: $0) }) }

  /// The same state with other identifiers of the owners.
  package func renamed<Other>(_ name: (Name) -> Other) -> OwnerCapacity<Other> {
    OwnerCapacity<Other>(shares.renamed(name), within: bounds, at: moment)
  }
}
