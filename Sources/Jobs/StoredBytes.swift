/// A stored image's bytes, there to be read for as long as this is held.
public enum StoredBytes: Sendable {
  /// In memory.
  case memory([UInt8])
  /// In a file, open.
  case file(any StoredFile)

  /// How many there are.
  public var count: Int {
    switch self {
    case .memory(let bytes): bytes.count
    case .file(let file): file.count
    }
  }

  /// Reads a part. It may wait for the disk.
  /// - Returns: fewer bytes than asked for when the file is shorter than it was, or can't be read.
  public func read(at offset: Int, count: Int) -> [UInt8] {
    switch self {
    case .memory(let bytes): Array(bytes.dropFirst(offset).prefix(count))
    case .file(let file): file.read(at: offset, count: count)
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
