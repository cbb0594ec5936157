package import Jobs

/// A statement and its arguments, `$1`, `$2` and so on.
package struct SQLStatement {
  package let sql: String
  package let values: [SQLValue]

  package init(_ sql: String, _ values: [SQLValue] = []) { (self.sql, self.values) = (sql, values) }
}

/// A statement's argument.
package enum SQLValue {
  case int(Int64?)
  case bool(Bool)
  case bytes([UInt8]?)
  case id(JobID?)
  case ints([Int64?])
  case bools([Bool])
  case byteStrings([[UInt8]?])
  case ids([JobID])

  /// The value in PostgreSQL's binary format (big-endian numbers); nil for NULL.
  package var encoded: [UInt8]? {
    switch self {
    case .int(let value): value?.bigEndianBytes
    case .bool(let value): [value ? 1 : 0]
    case .bytes(let value): value
    case .id(let value): value?.bytes
    case .ints(let values): Self.array(of: 20, values) { $0?.bigEndianBytes }
    case .bools(let values): Self.array(of: 16, values) { [$0 ? 1 : 0] }
    case .byteStrings(let values): Self.array(of: 17, values) { $0 }
    case .ids(let values): Self.array(of: 2950, values) { $0.bytes }
    }
  }

  /// Encodes a one-dimensional array: the number of dimensions, a NULL flag, the element type, the
  /// length and the lower bound 1, then each element preceded by its length.
  private static func array<Element>(
    of type: Int32, _ elements: [Element], _ encode: (Element) -> [UInt8]?
  ) -> [UInt8] {
    guard !elements.isEmpty else {
      return (0 as Int32).bigEndianBytes + [0, 0, 0, 0] + type.bigEndianBytes
    }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(20 + elements.count * 24)
    for number in [1, 1, type, Int32(elements.count), 1] { bytes += number.bigEndianBytes }
    for element in elements {
      guard let encoded = encode(element) else {
        bytes += (-1 as Int32).bigEndianBytes
        continue
      }
      bytes += Int32(encoded.count).bigEndianBytes
      bytes += encoded
    }
    return bytes
  }
}

extension FixedWidthInteger {
  /// The number in network byte order.
  var bigEndianBytes: [UInt8] { withUnsafeBytes(of: bigEndian) { Array($0) } }

  /// Decodes a number, which may have fewer bytes than this type.
  package init(bigEndianBytes bytes: UnsafeRawBufferPointer) {
    var value = bytes.first.map { $0 & 0x80 != 0 ? Self(truncatingIfNeeded: -1) : 0 } ?? 0
    for byte in bytes { value = value << 8 | Self(byte) }
    self = value
  }
}

extension JobID {
  /// 16 bytes with the same order as the ids.
  var bytes: [UInt8] { high.bigEndianBytes + low.bigEndianBytes }

  init?(bytes: UnsafeRawBufferPointer) {
    guard bytes.count == 16 else { return nil }
    let high = bytes.loadUnaligned(as: UInt64.self)
    let low = bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
    self.init(high: UInt64(bigEndian: high), low: UInt64(bigEndian: low))
  }
}

/// The cells of a statement's result.
package protocol ResultCells {
  /// The number of rows.
  var count: Int { get }
  /// The number of rows that an INSERT, UPDATE or DELETE changed.
  var changes: Int { get }
  /// A number; nil for NULL.
  func int(_ row: Int, _ column: Int) -> Int64?
  /// Calls the body with a cell's bytes; nil for NULL.
  func withBytes<Value>(
    _ row: Int, _ column: Int, _ body: (UnsafeRawBufferPointer) -> Value?
  ) -> Value?
}

/// The result of a statement.
package final class Rows {
  private let cells: any ResultCells
  package let count: Int

  package init(_ cells: any ResultCells) {
    self.cells = cells
    count = cells.count
  }

  package var isEmpty: Bool { count == 0 }

  /// The number of rows that an INSERT, UPDATE or DELETE changed.
  var changes: Int { cells.changes }

  /// The row numbers, for iteration.
  package var all: Range<Int> { 0..<count }

  /// Reads a number; nil for NULL.
  package func int(_ row: Int, _ column: Int) -> Int64? {
    row < count ? cells.int(row, column) : nil
  }

  private func value<Value>(
    _ row: Int, _ column: Int, _ read: (UnsafeRawBufferPointer) -> Value?
  ) -> Value? {
    row < count ? cells.withBytes(row, column, read) : nil
  }

  package func bytes(_ row: Int, _ column: Int) -> [UInt8]? { value(row, column) { Array($0) } }

  package func bool(_ row: Int, _ column: Int) -> Bool { int(row, column).map { $0 != 0 } ?? false }

  package func id(_ row: Int, _ column: Int) -> JobID? { value(row, column) { JobID(bytes: $0) } }

  func digest(_ row: Int, _ column: Int) -> ImageDigest? {
    value(row, column) { ImageDigest(bytes: $0) }
  }

  /// The images of all rows: column 0 is the digest, column 1 the generation.
  var names: [ImageName] {
    all.compactMap { row in
      digest(row, 0).map { ImageName($0, generation: int(row, 1) ?? 0) }
    }
  }
}

/// Client texts that are searched by an index. An index key has a maximum length.
enum IndexedText {
  /// Returns the text's bytes, or a hash if they are more than 512.
  static func bytes(of text: String) -> [UInt8] {
    let bytes = Array(text.utf8)
    return bytes.count <= 512 ? bytes : [0] + Fingerprint(of: [text]).bytes
  }
}
