/// The owners whose jobs may be claimed now. Divides an instance's workers among owners with
/// ``SharedCapacity``.
///
/// While other owners have jobs, an owner gets at most half of the workers. A quarter of the workers is
/// reserved for owners that have no worker, so a single owner gets three quarters. With fewer than four
/// workers, nothing is reserved.
package struct OwnerCapacity<Name: Hashable & Sendable>: Sendable {
  private var workers: SharedCapacity<Name>
  private let count: Int
  private let moment: Timestamp

  /// - Parameters:
  ///   - workers: The busy workers, by the owner of their job.
  ///   - count: The number of all workers.
  package init(_ workers: SharedCapacity<Name>, of count: Int, at moment: Timestamp) {
    (self.workers, self.count, self.moment) = (workers, count, moment)
  }

  /// No limits.
  package static var unlimited: Self {
    Self(SharedCapacity(), of: .max, at: Timestamp(milliseconds: 0))
  }

  /// The number of workers reserved for owners that have none.
  package static func reserved(of workers: Int) -> Int { workers / 4 }

  /// Whether another job of the owner may be claimed.
  package func hasCapacity(for owner: Name) -> Bool {
    workers.available(for: owner, within: count, keeping: Self.reserved(of: count), at: moment) > 0
  }

  /// Counts one more claimed job of the owner.
  package mutating func countJob(of owner: Name) { workers.acquireUnchecked(1, for: owner) }

  /// The owners that have workers and may have no more. Every other owner may have one more as long as a
  /// worker is idle.
  package var full: Set<Name> { Set(workers.clients.filter { !hasCapacity(for: $0) }) }

  /// The same state with other identifiers of the owners.
  package func renamed<Other>(_ name: (Name) -> Other) -> OwnerCapacity<Other> {
    OwnerCapacity<Other>(workers.renamed(name), of: count, at: moment)
  }
}
