/// Bytes that have arrived and are not consumed yet, in order.
struct PendingBytes {
  private var bytes: [UInt8] = []
  private var start = 0

  var count: Int { bytes.count - start }

  /// Appends bytes. If no bytes are pending, the array is adopted without a copy.
  mutating func append(_ more: [UInt8]) {
    if count == 0 {
      bytes = more
      start = 0
      return
    }
    // Moves the rest to the front only after dropping at least as many bytes. So each byte is moved once on average.
    if start > bytes.count / 2 {
      bytes.removeFirst(start)
      start = 0
    }
    bytes.append(contentsOf: more)
  }

  mutating func removeFirst(_ count: Int) {
    start += min(count, self.count)
    if start == bytes.count { self = PendingBytes() }
  }

  /// Calls `body` with the bytes that were not dropped.
  func withUnread<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
    bytes.withUnsafeBufferPointer { body(UnsafeBufferPointer(rebasing: $0[start...])) }
  }
}
