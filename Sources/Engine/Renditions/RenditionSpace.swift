internal import Jobs
internal import Synchronization

/// The disk space of renditions that wait for their receivers, shared among owners. A receiver decides how long that takes.
final class RenditionSpace: Sendable {
  private let capacity: Int
  private let now: WallClock
  private let shares = Mutex(SharedCapacity<Owner>())

  /// - Parameter capacity: in bytes. What is rendered at a time may exceed it.
  init(_ capacity: Int, now: @escaping WallClock) {
    (self.capacity, self.now) = (max(1, capacity), now)
  }

  /// Whether anything may be rendered for an owner.
  func hasRoom(for owner: Owner) -> Bool {
    shares.withLock { $0.hasRoom(for: 1, of: owner, within: capacity, at: now()) }
  }

  /// Takes space for bytes that were rendered, whether there is room or not.
  /// - Returns: gives it back when it is released.
  func hold(_ bytes: Int, for owner: Owner) -> Share {
    shares.withLock { $0.hold(bytes, for: owner) }
    return Share(of: self, bytes, owner)
  }

  /// Part of the space.
  final class Share: Sendable {
    private let space: RenditionSpace
    private let bytes: Int
    private let owner: Owner

    fileprivate init(of space: RenditionSpace, _ bytes: Int, _ owner: Owner) {
      (self.space, self.bytes, self.owner) = (space, bytes, owner)
    }

    deinit { space.shares.withLock { $0.release(bytes, of: owner) } }
  }
}
