/// For which owners a claim may hand over jobs: how an instance's workers are shared, as ``SharedCapacity`` shares them.
///
/// An owner has at most half of the workers while another one asks for some, and a quarter of them is left for owners that
/// have none. So an owner alone has three quarters. Of fewer than four workers no quarter is left.
public struct OwnerRoom<Name: Hashable & Sendable>: Sendable {
  private var workers: SharedCapacity<Name>
  private let count: Int
  private let moment: Timestamp

  /// - Parameters:
  ///   - workers: those that work, by the owner of their job.
  ///   - count: all workers.
  public init(_ workers: SharedCapacity<Name>, of count: Int, at moment: Timestamp) {
    (self.workers, self.count, self.moment) = (workers, count, moment)
  }

  /// No limits.
  public static var unlimited: Self {
    Self(SharedCapacity(), of: .max, at: Timestamp(milliseconds: 0))
  }

  /// Of so many workers this many are left for owners that have none.
  public static func kept(of workers: Int) -> Int { workers / 4 }

  /// Whether another job of the owner may be handed over.
  public func has(for owner: Name) -> Bool {
    workers.room(for: owner, within: count, keeping: Self.kept(of: count), at: moment) > 0
  }

  /// A job of the owner is handed over.
  public mutating func take(for owner: Name) { workers.hold(1, for: owner) }

  /// The owners that have workers and may have no more. Each other one has room, as long as a worker is idle.
  public var full: Set<Name> { Set(workers.clients.filter { !has(for: $0) }) }

  /// The same by other names of the owners.
  public func renamed<Other>(_ name: (Name) -> Other) -> OwnerRoom<Other> {
    OwnerRoom<Other>(workers.renamed(name), of: count, at: moment)
  }
}
