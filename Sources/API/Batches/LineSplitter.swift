/// Splits a text into lines while it arrives. A line ends with LF, CRLF or the end of the text.
struct LineSplitter {
  /// The maximum bytes of a line. Longer lines are not kept.
  static let longest = 1 << 20

  private var rest: [UInt8] = []
  private var isTooLong = false

  /// - Parameter take: called with each complete line; with nil if the line is too long.
  mutating func split(_ piece: [UInt8], _ take: (ArraySlice<UInt8>?) -> Void) {
    var start = piece.startIndex
    while let end = piece[start...].firstIndex(of: 0x0A) {
      if rest.isEmpty, !isTooLong {
        take(Self.trimmed(piece[start..<end]))
      } else {
        append(piece[start..<end])
        emitLine(take)
      }
      start = end + 1
    }
    append(piece[start...])
  }

  /// Reads the rest at the end of the text.
  mutating func finish(_ take: (ArraySlice<UInt8>?) -> Void) {
    if !rest.isEmpty || isTooLong { emitLine(take) }
  }

  private mutating func append(_ bytes: ArraySlice<UInt8>) {
    guard !isTooLong, rest.count + bytes.count <= Self.longest else {
      (rest, isTooLong) = ([], true)
      return
    }
    rest += bytes
  }

  private mutating func emitLine(_ take: (ArraySlice<UInt8>?) -> Void) {
    take(isTooLong ? nil : Self.trimmed(rest[...]))
    (rest, isTooLong) = ([], false)
  }

  private static func trimmed(_ line: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    line.last == 0x0D ? line.dropLast() : line
  }
}
