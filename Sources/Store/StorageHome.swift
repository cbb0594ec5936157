internal import Foundation
internal import Glibc
public import Jobs

/// A folder that one service has for itself, with a name of its own: by the name another store knows whether the images that its
/// jobs refer to are in this folder, and by the lock that no other service uses it.
public final class StorageHome: Sendable {
  /// Made with the folder, and the same at every start.
  public let name: String
  /// Whether no image's file lies in `images` within.
  public let isEmpty: Bool
  private let lock: FolderLock

  /// Locks the folder; makes it, and its name, where there is none.
  public init(_ path: String) throws(StoreError) {
    do {
      try StorageFolder.make(path, isDurable: true)
      // The same file as SQLite's: the one or the other is in a folder.
      lock = try FolderLock(path + "/jobs.sqlite.lock")
      name = try Self.name(in: path)
      isEmpty = !ImageFolder.fanOut.contains { Self.hasFiles(path + "/images/" + $0) }
    } catch {
      throw StoreError(cause: error)
    }
  }

  /// Lets the next service in.
  public func release() { lock.release() }

  private static func hasFiles(_ path: String) -> Bool {
    FileManager.default.enumerator(atPath: path)?.nextObject() != nil
  }

  private static func name(in folder: String) throws -> String {
    let path = folder + "/home"
    if FileManager.default.fileExists(atPath: path) {
      let text = try String(contentsOfFile: path, encoding: .utf8)
      let name = text.trimmingCharacters(in: .whitespacesAndNewlines)
      guard (1...64).contains(name.utf8.count) else {
        throw StoreError.unavailable(detail: "\(path) holds no name")
      }
      return name
    }
    let name = UUID().uuidString.lowercased()
    try write(name + "\n", to: path)
    // The other store remembers it: after a power cut it must be there, and whole.
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
