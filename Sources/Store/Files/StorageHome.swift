internal import Foundation
internal import Glibc
package import Jobs

/// A folder that one process uses exclusively, with an identifier. Another job store, for example
/// PostgreSQL, records the identifier to verify that this folder contains the images of its jobs. A
/// lock excludes other processes.
package final class StorageHome: Sendable {
  /// The identifier, created with the folder and the same at every start.
  package let name: String
  /// Whether the subfolder `images` contains no image.
  package let isEmpty: Bool
  private let lock: FolderLock

  /// Locks the folder; creates it and its identifier if missing.
  package init(_ path: String) throws(StoreError) {
    do {
      try StorageFolder.create(path, isDurable: true)
      // The same lock file as SQLite's, because a folder contains either an SQLite database or an
      // identifier.
      lock = try FolderLock(path + "/jobs.sqlite.lock")
      name = try Self.name(in: path)
      isEmpty = !ImageFolder.fanOut.contains { Self.hasFiles(path + "/images/" + $0) }
    } catch {
      throw StoreError(cause: error)
    }
  }

  /// Releases the lock.
  package func release() { lock.release() }

  private static func hasFiles(_ path: String) -> Bool {
    FileManager.default.enumerator(atPath: path)?.nextObject() != nil
  }

  private static func name(in folder: String) throws -> String {
    let path = folder + "/home"
    if FileManager.default.fileExists(atPath: path) {
      let text = try String(contentsOfFile: path, encoding: .utf8)
      let name = text.trimmingCharacters(in: .whitespacesAndNewlines)
      guard (1...64).contains(name.utf8.count) else {
        throw StoreError.unavailable(detail: "\(path) contains no valid name")
      }
      return name
    }
    let name = UUID().uuidString.lowercased()
    try write(name + "\n", to: path)
    // The other store has recorded the identifier, so it must survive a power failure.
    try StorageFolder.sync(folder)
    return name
  }

  private static func write(_ text: String, to path: String) throws(StoreError) {
    let new = path + ".new"
    let descriptor = Glibc.open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "making \(new)") }
    defer { close(descriptor) }
    var code = ImageFolder.write(Array(text.utf8), to: descriptor)
    if code == 0, fsync(descriptor) != 0 || rename(new, path) != 0 { code = errno }
    guard code == 0 else { throw StoreError(errno: code, "making \(path)") }
  }
}
