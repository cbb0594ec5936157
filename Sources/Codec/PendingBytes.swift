/// Bytes that came and were not consumed yet, in order.
struct PendingBytes {
  private var bytes: [UInt8] = []
  private var start = 0

  var count: Int { bytes.count - start }

  /// Adds at the end. Where nothing waits, the array is taken over uncopied.
  mutating func append(_ more: [UInt8]) {
    if count == 0 {
      bytes = more
      start = 0
      return
    }
    // Moves the rest to the front only once as much was dropped: each byte is moved once on average.
    if start > bytes.count / 2 {
      bytes.removeFirst(start)
      start = 0
    }
    bytes.append(contentsOf: more)
  }

  mutating func drop(_ count: Int) {
    start += min(count, self.count)
    if start == bytes.count { self = PendingBytes() }
  }

  /// Shows what was not dropped.
  func withUnread<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
    bytes.withUnsafeBufferPointer { body(UnsafeBufferPointer(rebasing: $0[start...])) }
  }
}
