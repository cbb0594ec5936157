internal import Foundation
internal import Glibc
internal import Jobs

/// Creates durable folders. A folder's name is synced before anything is stored in it, because
/// files are lost if a power failure removes their folder.
enum StorageFolder {
  /// Creates the folder, accessible only to its owner, and missing parent folders.
  ///
  /// - Parameter isDurable: whether the folder must survive a crash of the machine.
  static func create(_ path: String, isDurable: Bool) throws(StoreError) {
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
