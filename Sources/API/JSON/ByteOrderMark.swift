/// Removes the byte order mark (U+FEFF in UTF-8: EF BB BF) that editors and spreadsheets write before a text.
struct ByteOrderMark {
  private static let bytes: [UInt8] = [0xEF, 0xBB, 0xBF]

  /// The number of bytes of the mark received so far; nil: the text has begun.
  private var held: Int? = 0

  /// Returns the piece without the mark. Bytes that may turn out to be the mark are held back.
  mutating func removed(from piece: [UInt8]) -> [UInt8] {
    guard let held else { return piece }
    let expected = Self.bytes[held...]
    let count = zip(piece, expected).prefix { $0 == $1 }.count
    if count == piece.count, count < expected.count {
      self.held = held + count
      return []
    }
    self.held = nil
    return count == expected.count ? Array(piece[count...]) : Self.bytes[..<held] + piece
  }

  /// Returns the bytes held back at the end of the text: an incomplete mark is text.
  mutating func rest() -> [UInt8] {
    defer { held = nil }
    return Array(Self.bytes[..<(held ?? 0)])
  }

  /// Returns a complete text without the mark.
  static func removed(from text: [UInt8]) -> [UInt8] {
    text.starts(with: bytes) ? Array(text.dropFirst(bytes.count)) : text
  }
}
