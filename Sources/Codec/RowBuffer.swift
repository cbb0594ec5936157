/// Memory for samples, not initialised.
final class RowBuffer {
  let start: UnsafeMutablePointer<UInt8>

  init(count: Int) { start = .allocate(capacity: max(1, count)) }

  deinit { start.deallocate() }
}
