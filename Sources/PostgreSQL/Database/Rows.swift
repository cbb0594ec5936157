internal import CPQ
internal import Jobs

/// The result of a statement. The bytes belong to libpq and are copied when a value is read.
final class Rows {
  private let result: OpaquePointer
  let count: Int

  /// Takes ownership of the result.
  init(_ result: OpaquePointer) {
    self.result = result
    count = Int(PQntuples(result))
  }

  deinit { PQclear(result) }

  var isEmpty: Bool { count == 0 }

  /// The number of rows that an INSERT, UPDATE or DELETE changed.
  var changes: Int { Int(String(cString: PQcmdTuples(result))) ?? 0 }

  /// The row numbers, for iteration.
  var all: Range<Int> { 0..<count }

  private func value<Value>(
    _ row: Int, _ column: Int, _ read: (UnsafeRawBufferPointer) -> Value?
  ) -> Value? {
    let (row, column) = (Int32(row), Int32(column))
    guard row < count, PQgetisnull(result, row, column) == 0,
      let bytes = PQgetvalue(result, row, column)
    else { return nil }
    return read(UnsafeRawBufferPointer(start: bytes, count: Int(PQgetlength(result, row, column))))
  }

  /// Reads a number of up to 8 bytes; `nil` for NULL.
  func int(_ row: Int, _ column: Int) -> Int64? {
    value(row, column) { $0.count <= 8 ? Int64(bigEndianBytes: $0) : nil }
  }

  func bytes(_ row: Int, _ column: Int) -> [UInt8]? { value(row, column) { Array($0) } }

  func bool(_ row: Int, _ column: Int) -> Bool { value(row, column) { $0.first == 1 } ?? false }

  func id(_ row: Int, _ column: Int) -> JobID? { value(row, column) { JobID(bytes: $0) } }

  func digest(_ row: Int, _ column: Int) -> ImageDigest? {
    value(row, column) { ImageDigest(bytes: $0) }
  }

  /// The images of all rows: column 0 is the digest, column 1 the generation.
  var names: [ImageName] {
    all.compactMap { row in
      digest(row, 0).map { ImageName($0, generation: int(row, 1) ?? 0) }
    }
  }

  /// Reads a column in the text format of a simple query.
  func text(_ row: Int, _ column: Int) -> String? {
    value(row, column) { String(decoding: $0, as: UTF8.self) }
  }
}
