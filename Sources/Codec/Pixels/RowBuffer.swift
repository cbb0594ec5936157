/// Uninitialized memory for samples.
final class RowBuffer {
  let start: UnsafeMutablePointer<UInt8>

  init(count: Int) { start = .allocate(capacity: max(1, count)) }

  deinit { start.deallocate() }
}
