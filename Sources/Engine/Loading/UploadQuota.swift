internal import Jobs
internal import Synchronization

/// The bytes of images that clients are sending: each counts in what may be kept, and in its owner's share of that.
final class UploadQuota: Sendable {
  private let capacity: Int
  private let now: WallClock
  private let shares = Mutex(SharedCapacity<Owner>())

  init(_ capacity: Int, now: @escaping WallClock) {
    (self.capacity, self.now) = (capacity, now)
  }

  /// What is being received in all.
  var held: Int { shares.withLock { $0.held } }

  /// - Throws: `.full` where there is no room for so much more.
  func take(_ bytes: Int, for owner: Owner) throws(StoreError) {
    let isTaken = shares.withLock { $0.take(bytes, for: owner, within: capacity, at: now()) }
    guard isTaken else { throw .full }
  }

  func release(_ bytes: Int, of owner: Owner) {
    shares.withLock { $0.release(bytes, of: owner) }
  }
}
