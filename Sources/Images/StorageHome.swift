internal import Foundation
internal import Glibc
package import Jobs
internal import Synchronization

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
    } catch let error as StoreError {
      throw error
    } catch {
      throw .unavailable(detail: "\(error)")
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

/// Creates durable folders. A folder's name is synced before anything is stored in it, because
/// files are lost if a power failure removes their folder.
package enum StorageFolder {
  /// Creates the folder, accessible only to its owner, and missing parent folders.
  ///
  /// - Parameter isDurable: whether the folder must survive a crash of the machine.
  package static func create(_ path: String, isDurable: Bool) throws(StoreError) {
    // "x/" is created as "x".
    let folder = URL(fileURLWithPath: path).standardizedFileURL.path
    let parent = URL(fileURLWithPath: folder).deletingLastPathComponent().path
    var code = mkdir(folder, 0o700) == 0 ? 0 : errno
    if code == ENOENT, parent != folder {
      try create(parent, isDurable: isDurable)
      code = mkdir(folder, 0o700) == 0 ? 0 : errno
    }
    var status = stat()
    if code == EEXIST || code == EISDIR || code == EROFS, stat(folder, &status) == 0 {
      guard status.st_mode & S_IFMT == S_IFDIR else {
        throw StoreError(errno: ENOTDIR, "making the folder")
      }
    } else if code != 0 {
      throw StoreError(errno: code, "making the folder")
    }
    guard isDurable, access(parent, R_OK) == 0 else { return }
    // An earlier run may have created it without syncing its parent. If it is a mount point, the
    // parent can't be synced.
    if code == 0 { try sync(parent) } else { try? sync(parent) }
  }

  /// Syncs the names in a folder.
  static func sync(_ path: String) throws(StoreError) {
    let descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "opening \(path)/") }
    defer { close(descriptor) }
    guard fsync(descriptor) == 0 else { throw StoreError(errno: errno, "syncing \(path)/") }
  }
}

/// Locks a folder against a second process until it is released.
///
/// The kernel releases the lock when the process ends for any reason.
package final class FolderLock: Sendable {
  private let descriptor: Mutex<Int32?>

  /// How long to wait for a lock of a process that has ended. A child process that it was spawning
  /// inherits the lock and holds it until it calls exec.
  private static let patience = Duration.seconds(2)

  /// - Parameter path: the file to lock; created if missing.
  package init(_ path: String) throws(StoreError) {
    let descriptor = Glibc.open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "opening \(path)") }
    let deadline = ContinuousClock.now + Self.patience
    while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
      let code = errno
      if code == EWOULDBLOCK, ContinuousClock.now < deadline {
        usleep(10_000)
        continue
      }
      close(descriptor)
      guard code == EWOULDBLOCK else { throw StoreError(errno: code, "locking \(path)") }
      throw .unavailable(detail: "\(path) is locked: another service uses this folder")
    }
    self.descriptor = Mutex(descriptor)
  }

  deinit { release() }

  /// Releases the lock.
  package func release() {
    let held = descriptor.withLock { held in
      defer { held = nil }
      return held
    }
    guard let held else { return }
    // A child that is being spawned has a copy of the descriptor, so closing it is not enough.
    flock(held, LOCK_UN)
    close(held)
  }
}

extension StoreError {
  /// Converts the error of a system call.
  /// - Parameters:
  ///   - code: `errno` right after the call.
  ///   - action: the attempted action, for the log.
  package init(errno code: Int32, _ action: String) {
    switch code {
    case ENOSPC, EDQUOT: self = .full
    default: self = .unavailable(detail: "\(action): \(String(cString: strerror(code)))")
    }
  }
}
