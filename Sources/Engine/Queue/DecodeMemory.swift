internal import Jobs
internal import Waiting

/// The memory that decodes may hold at once. Who needs more than is left waits its turn: first come, first served.
struct DecodeMemory: Sendable {
  /// A part of it, given back when let go.
  typealias Share = AsyncSemaphore.Permit

  /// Who needs no more than this part of all never waits.
  static let smallPart = 256

  private let total: Int
  private let free: AsyncSemaphore

  init(bytes: Int) {
    total = bytes
    free = AsyncSemaphore(bytes)
  }

  /// Waits until `bytes` are free (all of it, where that is less) and takes them; nil when the task was cancelled.
  func share(_ bytes: Int) async -> Share? {
    bytes <= total / Self.smallPart ? free.overdraw(bytes) : await free.acquire(bytes)
  }

  /// How many wait for their share.
  var waiting: Int { free.waiting }
}
