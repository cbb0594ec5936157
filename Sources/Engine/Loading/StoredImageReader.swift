internal import Jobs

/// Reads a stored image's bytes from their start, a piece at a time.
final class StoredImageReader: ImageBytes {
  private let stored: StoredBytes
  private let position = Position()
  private static let pieceSize = 64 << 10

  /// One task reads: the contract of ``ImageBytes``.
  private final class Position: @unchecked Sendable { var offset = 0 }

  init(_ stored: StoredBytes) { self.stored = stored }

  func next() async throws(FetchError) -> [UInt8]? {
    if Task.isCancelled { throw .cancelled }
    let count = min(Self.pieceSize, stored.count - position.offset)
    guard count > 0 else { return nil }
    let piece = stored.read(at: position.offset, count: count)
    guard piece.count == count else {
      throw .truncated(received: position.offset + piece.count, expected: stored.count)
    }
    position.offset += count
    return piece
  }
}
