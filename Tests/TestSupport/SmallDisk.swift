internal import Foundation
internal import Glibc

/// A disk of a few megabytes, in memory, that a test fills and empties. Only root can have one.
public final class SmallDisk: Sendable {
  /// What of a PostgreSQL server is on it.
  public enum Content: Sendable { case tables, log }

  private let path: String

  /// Whether this process may mount one.
  public static let isPossible: Bool = {
    let path = NSTemporaryDirectory() + "/imagefetch-disk-\(getpid())"
    guard getuid() == 0, mkdir(path, 0o755) == 0 else { return false }
    defer { rmdir(path) }
    guard let disk = try? SmallDisk(at: path, for: .log) else { return false }
    disk.end()
    return true
  }()

  static func place(in folder: String) -> String { folder + "/disk" }

  /// Mounts one for a PostgreSQL server.
  convenience init(at path: String, for content: Content) throws {
    // A new database's tables take some 40 MB with those of its templates, a segment of the log 16.
    try self.init(at: path, size: content == .tables ? "96m" : "48m")
  }

  /// Mounts it.
  /// - Parameter size: such as `96m`.
  public init(at path: String, size: String) throws {
    self.path = path
    mkdir(path, 0o755)
    guard mount("tmpfs", path, "tmpfs", 0, "size=\(size),mode=755") == 0 else {
      throw PostgresServer.Failure(description: "\(path): \(String(cString: strerror(errno)))")
    }
  }

  /// Has a file take all of its room.
  /// - Parameter rest: bytes that stay free.
  public func fill(leaving rest: Int = 0) throws {
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

  /// Removes that file.
  public func empty() { unlink(path + "/ballast") }

  /// Bytes that are free.
  public var free: Int {
    var status = statvfs()
    return statvfs(path, &status) == 0 ? Int(status.f_bavail * status.f_frsize) : 0
  }

  /// Unmounts it.
  public func end() { umount2(path, Int32(MNT_DETACH)) }
}
