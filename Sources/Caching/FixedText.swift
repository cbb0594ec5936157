/// Writes short ASCII texts and numbers of fixed width into a buffer, which must be large enough.
///
/// It does not allocate. A job's JSON contains four timestamps, and a formatter's allocations would cost more than the rest.
package struct FixedText {
  private let buffer: UnsafeMutableBufferPointer<UInt8>
  package private(set) var count = 0

  package init(_ buffer: UnsafeMutableBufferPointer<UInt8>) { self.buffer = buffer }

  package mutating func append(_ number: Int, width: Int) {
    var rest = number
    for place in stride(from: count + width - 1, through: count, by: -1) {
      buffer[place] = UInt8(ascii: "0") + UInt8(rest % 10)
      rest /= 10
    }
    count += width
  }

  package mutating func append(_ text: String) {
    for byte in text.utf8 {
      buffer[count] = byte
      count += 1
    }
  }
}
