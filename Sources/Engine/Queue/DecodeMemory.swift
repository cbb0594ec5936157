internal import Jobs
internal import Waiting

/// The memory that decodes may hold at once. Who needs more than is left waits its turn: first come, first served.
///
/// An origin that sends no more than a large picture's first bytes must not have others wait for it. So pictures whose
/// bytes are still coming hold no more than half of the memory, and give that back with their next piece, or when none
/// came for long, where anybody waits.
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

  /// Takes `bytes` for a picture whose own are not all there; nil where the half that is the others' would be touched.
  func shareWhileLoading(_ bytes: Int) -> Share? {
    isSmall(bytes) ? free.overdraw(bytes) : free.acquire(bytes, leaving: total - total / 2)
  }

  /// Takes `bytes` (all of it, where that is less) where nobody has to wait for that; else nil.
  func shareAtOnce(_ bytes: Int) -> Share? {
    isSmall(bytes) ? free.overdraw(bytes) : free.acquire(min(bytes, total), leaving: 0)
  }

  /// Whether pictures whose bytes are not all there have to give back what they hold.
  var isWanted: Bool { free.waiting > 0 }

  /// Waits until `bytes` are free (all of it, where that is less) and takes them; nil when the task was cancelled.
  func share(_ bytes: Int) async -> Share? {
    isSmall(bytes) ? free.overdraw(bytes) : await free.acquire(bytes)
  }

  func isSmall(_ bytes: Int) -> Bool { bytes <= total / Self.smallPart }

  /// How many wait for their share.
  var waiting: Int { free.waiting }
}
