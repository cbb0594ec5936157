internal import Foundation
internal import Glibc

/// A disk of some megabytes in memory, which a test fills and empties. It requires root.
package final class SmallDisk: Sendable {
  /// The part of a PostgreSQL server that is on the disk.
  package enum Content: Sendable { case tables, log }

  private let path: String

  /// Whether this process may mount such a disk.
  package static let isPossible: Bool = {
    let path = NSTemporaryDirectory() + "/imagefetch-disk-\(getpid())"
    guard getuid() == 0, mkdir(path, 0o755) == 0 else { return false }
    defer { rmdir(path) }
    guard let disk = try? SmallDisk(at: path, for: .log) else { return false }
    disk.unmount()
    return true
  }()

  static func place(in folder: String) -> String { folder + "/disk" }

  /// Mounts a disk for a PostgreSQL server.
  convenience init(at path: String, for content: Content) throws {
    // A new database needs about 40 MB for its tables and templates. A segment of the log needs 16 MB.
    try self.init(at: path, size: content == .tables ? "96m" : "48m")
  }

  /// Mounts a disk.
  /// - Parameter size: such as `96m`.
  package init(at path: String, size: String) throws {
    self.path = path
    mkdir(path, 0o755)
    guard mount("tmpfs", path, "tmpfs", 0, "size=\(size),mode=755") == 0 else {
      throw PostgresServer.Failure(description: "\(path): \(String(cString: strerror(errno)))")
    }
  }

  /// Fills the disk with a file.
  /// - Parameter rest: the number of bytes that stay free.
  package func fill(leaving rest: Int = 0) throws {
    let descriptor = open(path + "/ballast", O_CREAT | O_WRONLY | O_APPEND, 0o644)
    guard descriptor >= 0 else {
      throw PostgresServer.Failure(description: "\(path): \(String(cString: strerror(errno)))")
    }
    let piece = [UInt8](repeating: 1, count: 4_096)
    if rest > 0 {
      while free > rest, write(descriptor, piece, piece.count) > 0 {}
    } else {
      while write(descriptor, piece, piece.count) > 0 {}
    }
    close(descriptor)
  }

  /// Removes the file that fills the disk.
  package func empty() { unlink(path + "/ballast") }

  /// The number of free bytes.
  package var free: Int {
    var status = statvfs()
    return statvfs(path, &status) == 0 ? Int(status.f_bavail * status.f_frsize) : 0
  }

  /// Unmounts the disk.
  package func unmount() { umount2(path, Int32(MNT_DETACH)) }
}
