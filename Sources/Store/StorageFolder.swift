internal import Foundation
internal import Glibc
internal import Jobs

/// Folders that hold what is promised: each has its name on the disk before anything is put into it, as what a power cut
/// leaves of a file is of no use where the folder above it is not found again.
enum StorageFolder {
  /// Makes the folder, for its owner alone, and those above it where there are none.
  ///
  /// - Parameter isDurable: whether it outlives a crash of the machine.
  static func make(_ path: String, isDurable: Bool) throws(StoreError) {
    // "x/" is made as "x".
    let folder = URL(fileURLWithPath: path).standardizedFileURL.path
    let parent = URL(fileURLWithPath: folder).deletingLastPathComponent().path
    var code = mkdir(folder, 0o700) == 0 ? 0 : errno
    if code == ENOENT, parent != folder {
      try make(parent, isDurable: isDurable)
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
    // An earlier run may have made it and come no further; or it is a mount, and what is above it can't be synced.
    if code == 0 { try sync(parent) } else { try? sync(parent) }
  }

  /// Has the names in a folder on the disk.
  static func sync(_ path: String) throws(StoreError) {
    let descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "opening \(path)/") }
    defer { close(descriptor) }
    guard fsync(descriptor) == 0 else { throw StoreError(errno: errno, "syncing \(path)/") }
  }
}
