/// The bytes of a stored image. They stay readable as long as this value exists, even if the image is
/// deleted.
package enum StoredBytes: Sendable {
  /// Bytes in memory.
  case memory([UInt8])
  /// A range of an open file.
  case file(any StoredFile, Range<Int>)

  /// The limit, in bytes, for keeping an image or variant in memory while it is sent to a client. Larger ones
  /// stay in files, because clients may read slowly or never.
  package static let mostInMemory = 128 << 10

  /// All bytes of an open file.
  package static func file(_ file: any StoredFile) -> StoredBytes { .file(file, 0..<file.count) }

  /// The number of bytes.
  package var count: Int {
    switch self {
    case .memory(let bytes): bytes.count
    case .file(_, let range): range.count
    }
  }

  /// Reads a part. May block on the disk.
  /// - Returns: Fewer bytes than requested if the file became shorter or cannot be read.
  package func read(at offset: Int, count: Int) -> [UInt8] {
    switch self {
    case .memory(let bytes): Array(bytes.dropFirst(offset).prefix(count))
    case .file(let file, let range):
      file.read(
        at: range.lowerBound + offset, count: max(0, min(count, range.count - offset)))
    }
  }

  /// Returns a part of the bytes.
  /// - Parameter part: A range within `0..<count`.
  package func part(_ part: Range<Int>) -> StoredBytes {
    switch self {
    case .memory(let bytes): .memory(Array(bytes[part]))
    case .file(let file, let range):
      .file(file, range.lowerBound + part.lowerBound..<range.lowerBound + part.upperBound)
    }
  }
}

/// A file that is open for reading. It is closed when the last reference is released.
///
/// The adapter that opens files and the HTTP server agree on the concrete type, so that the kernel can send
/// the file.
package protocol StoredFile: AnyObject, Sendable {
  /// The size in bytes when the file was opened.
  var count: Int { get }

  /// Reads a part. May block on the disk.
  /// - Returns: Fewer bytes than requested if the file became shorter or cannot be read.
  func read(at offset: Int, count: Int) -> [UInt8]
}
