/// A stored image's bytes, there to be read for as long as this is held.
public enum StoredBytes: Sendable {
  /// In memory.
  case memory([UInt8])
  /// In a file, open: these of its bytes.
  case file(any StoredFile, Range<Int>)

  /// Longer images and variants wait for their receivers in files, not in memory, because a receiver may read slowly or
  /// never.
  public static let mostInMemory = 128 << 10

  /// All of an open file's bytes.
  public static func file(_ file: any StoredFile) -> StoredBytes { .file(file, 0..<file.count) }

  /// How many there are.
  public var count: Int {
    switch self {
    case .memory(let bytes): bytes.count
    case .file(_, let range): range.count
    }
  }

  /// Reads a part. It may wait for the disk.
  /// - Returns: fewer bytes than asked for when the file is shorter than it was, or can't be read.
  public func read(at offset: Int, count: Int) -> [UInt8] {
    switch self {
    case .memory(let bytes): Array(bytes.dropFirst(offset).prefix(count))
    case .file(let file, let range):
      file.read(
        at: range.lowerBound + offset, count: max(0, min(count, range.count - offset)))
    }
  }

  /// A part of them.
  /// - Parameter part: within them.
  public func part(_ part: Range<Int>) -> StoredBytes {
    switch self {
    case .memory(let bytes): .memory(Array(bytes[part]))
    case .file(let file, let range):
      .file(file, range.lowerBound + part.lowerBound..<range.lowerBound + part.upperBound)
    }
  }
}

/// A file that is open for reading, and closed once nobody holds it any more.
///
/// How it is open is between the adapter that opened it and a server that can have the kernel send it.
public protocol StoredFile: AnyObject, Sendable {
  /// Bytes, when it was opened.
  var count: Int { get }

  /// Reads a part. It may wait for the disk.
  /// - Returns: fewer bytes than asked for when the file is shorter than it was, or can't be read.
  func read(at offset: Int, count: Int) -> [UInt8]
}
