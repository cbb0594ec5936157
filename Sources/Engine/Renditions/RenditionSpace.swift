internal import Jobs
internal import Synchronization

/// The disk space of renditions that are being sent to clients, shared among owners. It is limited because a slow
/// client can hold a rendition for long.
final class RenditionSpace: Sendable {
  private let bounds: ShareBounds
  private let now: WallClock
  private let shares = Mutex(FairShare<Owner>())

  /// - Parameter capacity: in bytes. Renditions that are being made when it is reached may exceed it.
  init(_ capacity: Int, now: @escaping WallClock) {
    (bounds, self.now) = (ShareBounds(max(1, capacity)), now)
  }

  /// Whether a rendition may be made for this owner.
  func hasRoom(for owner: Owner) -> Bool {
    shares.withLock { $0.hasCapacity(for: 1, of: owner, within: bounds, at: now()) }
  }

  /// Reserves space for rendered bytes, even if that exceeds the limit.
  /// - Returns: the reservation, which ends when it is released.
  func reserve(_ bytes: Int, for owner: Owner) -> SpaceReservation {
    shares.withLock { $0.acquireUnchecked(bytes, for: owner) }
    return SpaceReservation(of: self, bytes, owner)
  }

  final class SpaceReservation: Sendable {
    private let space: RenditionSpace
    private let bytes: Int
    private let owner: Owner

    fileprivate init(of space: RenditionSpace, _ bytes: Int, _ owner: Owner) {
      (self.space, self.bytes, self.owner) = (space, bytes, owner)
    }

    deinit { space.shares.withLock { $0.release(bytes, of: owner) } }
  }
}
