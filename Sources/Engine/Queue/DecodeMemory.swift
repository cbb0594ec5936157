internal import Jobs
internal import Waiting

/// The memory shared by all decodes. A decode that needs more than is free waits; waiting decodes are served in order
/// of arrival.
///
/// An origin that sends only the first bytes of a large image must not make other decodes wait. So images that are
/// still downloading use at most half of the memory. While a decode waits, they release it with the next piece they
/// receive, or after a time without one.
struct DecodeMemory: Sendable {
  /// A part of the memory, released when the value is destroyed.
  typealias MemoryPermit = AsyncSemaphore.Permit

  /// A decode that needs at most this fraction (1/256) of the memory never waits.
  static let smallPart = 256

  private let total: Int
  private let free: AsyncSemaphore

  init(bytes: Int) {
    total = bytes
    free = AsyncSemaphore(bytes)
  }

  /// Reserves `bytes` for an image that is still downloading. Returns nil if less than half of the memory would be left
  /// for complete images.
  func reserveWhileDownloading(_ bytes: Int) -> MemoryPermit? {
    isSmall(bytes)
      ? free.acquireImmediately(bytes) : free.acquire(bytes, leaving: total - total / 2)
  }

  /// Reserves `bytes`, or all memory if that is less, without waiting. Returns nil if a decode would have to wait for
  /// it.
  func reserveNow(_ bytes: Int) -> MemoryPermit? {
    isSmall(bytes) ? free.acquireImmediately(bytes) : free.acquire(min(bytes, total), leaving: 0)
  }

  /// Whether images that are still downloading have to release their memory, because a decode waits.
  var isWanted: Bool { free.waiting > 0 }

  /// Waits until `bytes` are free, or all memory if that is less, and reserves them. Returns nil if the task was
  /// cancelled.
  func reserve(_ bytes: Int) async -> MemoryPermit? {
    isSmall(bytes) ? free.acquireImmediately(bytes) : await free.acquire(bytes)
  }

  func isSmall(_ bytes: Int) -> Bool { bytes <= total / Self.smallPart }

  /// Number of decodes that wait.
  var waiting: Int { free.waiting }
}
