internal import Glibc

/// Reads files that a configuration names.
package enum FileText {
  /// The bytes of a file, or the end of an error message, such as `is a folder, not a file`.
  package enum Content {
    case bytes([UInt8])
    case wrong(String)
  }

  static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

  static func fileMistake(_ path: String) -> String? {
    guard access(path, R_OK) == 0 else { return "cannot be read: \(reason(errno))" }
    return isFolder(path) ? "is a folder, not a file" : nil
  }

  static func folderMistake(_ path: String) -> String? {
    if exists(path), !isFolder(path) { return "is not a folder" }
    return access(path, R_OK | X_OK) == 0 ? nil : "cannot be read: \(reason(errno))"
  }

  /// Reads a whole file of at most `limit` bytes.
  ///
  /// - Parameter isPlain: whether to refuse anything but a regular file. A FIFO could block the reader.
  package static func read(_ path: String, limit: Int, isPlain: Bool = false) -> Content {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | (isPlain ? O_NONBLOCK : 0))
    guard descriptor >= 0 else { return .wrong("cannot be read: \(reason(errno))") }
    defer { close(descriptor) }
    var status = stat()
    guard !isPlain || (fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG) else {
      return .wrong("is not a file")
    }
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = Glibc.read(descriptor, &chunk, chunk.count)
      if count < 0 && errno == EINTR { continue }
      guard count >= 0 else { return .wrong("cannot be read: \(reason(errno))") }
      if count == 0 { return .bytes(bytes) }
      bytes += chunk.prefix(count)
      guard bytes.count <= limit else {
        return .wrong("is larger than \(QuantityUnit.sizes.text(limit))")
      }
    }
  }

  private static func isFolder(_ path: String) -> Bool {
    var status = stat()
    return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
  }

  private static func reason(_ code: Int32) -> String { String(cString: strerror(code)) }
}
