/// Short ASCII and numbers of a fixed width, written one behind the other into a buffer that has
/// room: a job's JSON tells four times, a formatter's allocations would be most of its cost.
package struct FixedText {
  private let buffer: UnsafeMutableBufferPointer<UInt8>
  package private(set) var count = 0

  package init(_ buffer: UnsafeMutableBufferPointer<UInt8>) { self.buffer = buffer }

  package mutating func put(_ number: Int, _ width: Int) {
    var rest = number
    for place in stride(from: count + width - 1, through: count, by: -1) {
      buffer[place] = UInt8(ascii: "0") + UInt8(rest % 10)
      rest /= 10
    }
    count += width
  }

  package mutating func put(_ text: String) {
    for byte in text.utf8 {
      buffer[count] = byte
      count += 1
    }
  }
}
