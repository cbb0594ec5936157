internal import Foundation
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
      try FileManager.default.createDirectory(
        atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
      // The same file as SQLite's: the one or the other is in a folder.
      lock = try FolderLock(path + "/jobs.sqlite.lock")
      name = try Self.name(of: path + "/home")
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

  private static func name(of path: String) throws -> String {
    if FileManager.default.fileExists(atPath: path) {
      let text = try String(contentsOfFile: path, encoding: .utf8)
      let name = text.trimmingCharacters(in: .whitespacesAndNewlines)
      guard (1...64).contains(name.utf8.count) else {
        throw StoreError.unavailable(detail: "\(path) holds no name")
      }
      return name
    }
    let name = UUID().uuidString.lowercased()
    try Data((name + "\n").utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
    return name
  }
}
