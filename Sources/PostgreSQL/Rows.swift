internal import CPQ
internal import Jobs

/// What a statement gave. Its bytes are libpq's, and are copied as they are asked for.
final class Rows {
  private let result: OpaquePointer
  let count: Int

  /// Takes the result over.
  init(_ result: OpaquePointer) {
    self.result = result
    count = Int(PQntuples(result))
  }

  deinit { PQclear(result) }

  var isEmpty: Bool { count == 0 }

  /// Rows that an INSERT, UPDATE or DELETE concerned.
  var changes: Int { Int(String(cString: PQcmdTuples(result))) ?? 0 }

  /// Each row's number, for a walk over them.
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

  /// A number of any width; nil for NULL.
  func int(_ row: Int, _ column: Int) -> Int64? {
    value(row, column) { $0.count <= 8 ? Int64(bigEndianBytes: $0) : nil }
  }

  func bytes(_ row: Int, _ column: Int) -> [UInt8]? { value(row, column) { Array($0) } }

  func bool(_ row: Int, _ column: Int) -> Bool { value(row, column) { $0.first == 1 } ?? false }

  func id(_ row: Int, _ column: Int) -> JobID? { value(row, column) { JobID(bytes: $0) } }

  func digest(_ row: Int, _ column: Int) -> ImageDigest? {
    value(row, column) { ImageDigest(bytes: $0) }
  }

  /// Each row's image, by columns of digests and generations.
  var names: [ImageName] {
    all.compactMap { row in
      digest(row, 0).map { ImageName($0, generation: int(row, 1) ?? 0) }
    }
  }

  /// The text of a column that is asked for in a simple query.
  func text(_ row: Int, _ column: Int) -> String? {
    value(row, column) { String(decoding: $0, as: UTF8.self) }
  }
}
