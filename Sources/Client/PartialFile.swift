internal import Glibc

/// The reason why an image could not be saved, with its path; shown to the user.
struct SaveError: Error, Equatable {
  let path: String
  let cause: SystemError

  var text: String { "\(PlainText.line(path)): \(cause.text)" }
}

/// A file that is being written, under a random name. Its final name never refers to an incomplete image. If
/// it is not placed, it is deleted.
final class PartialFile {
  let descriptor: Int32
  private let folder: String
  private let path: String
  private var isPlaced = false

  /// - Parameters:
  ///   - folder: The folder of the final name, so that a rename is enough.
  ///   - isPrivate: Whether other users must not read it. It has no name and is copied, not placed.
  init(in folder: String, isPrivate: Bool = false) throws(SaveError) {
    self.folder = folder
    path = Self.join(
      folder, ".imagefetch-\(String(UInt64.random(in: .min ... .max), radix: 36)).part")
    // The permissions of an ordinary new file; the user's umask applies.
    let rights: mode_t = isPrivate ? 0o600 : 0o666
    descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, rights)
    guard descriptor >= 0 else {
      isPlaced = true
      throw SaveError(path: folder, cause: SystemError(code: errno))
    }
    // The file needs no name, because its bytes are copied.
    if isPrivate {
      unlink(path)
      isPlaced = true
    }
  }

  deinit {
    if descriptor >= 0 { close(descriptor) }
    if !isPlaced { unlink(path) }
  }

  /// Deletes what was written so far.
  func restart() throws(SaveError) {
    guard ftruncate(descriptor, 0) == 0, lseek(descriptor, 0, SEEK_SET) == 0 else {
      throw SaveError(path: path, cause: SystemError(code: errno))
    }
  }

  /// Writes the file's data to disk before it is renamed. After a power failure the name could otherwise
  /// refer to an empty file.
  private func sync(for target: String) throws(SaveError) {
    // Some file systems do not support fdatasync.
    guard fdatasync(descriptor) == 0 || errno == EINVAL || errno == ENOSYS else {
      throw SaveError(path: target, cause: SystemError(code: errno))
    }
  }

  /// Renames the file to its final name and replaces an existing file.
  func place(as target: String) throws(SaveError) {
    try sync(for: target)
    guard rename(path, target) == 0 else {
      throw SaveError(path: target, cause: SystemError(code: errno))
    }
    isPlaced = true
  }

  /// Renames the file to a name that does not exist yet, with a number if necessary.
  /// - Parameter name: A path relative to the folder. Missing folders are created.
  /// - Returns: The path.
  func place(named name: String) throws(SaveError) -> String {
    if let slash = name.lastIndex(of: "/") {
      try Output.makeFolder(Self.join(folder, String(name[..<slash])))
    }
    try sync(for: Self.join(folder, name))
    for _ in 0..<64 {
      let found = FreeNumber.find { number in
        access(Self.join(folder, FileName.numbered(name, number)), F_OK) != 0
      }
      guard let found else { break }
      // Other threads and processes may claim the same name at the same time.
      for number in found..<found + 8 {
        let target = Self.join(folder, FileName.numbered(name, number))
        if try claim(target) { return target }
      }
    }
    throw SaveError(path: Self.join(folder, name), cause: SystemError(code: EEXIST))
  }

  /// Tries to give the file this name.
  /// - Returns: False if the name exists.
  private func claim(_ target: String) throws(SaveError) -> Bool {
    if link(path, target) == 0 {
      isPlaced = true
      unlink(path)
      return true
    }
    switch errno {
    case EEXIST: return false
    case EPERM, EOPNOTSUPP, ENOSYS, EMLINK:
      // On a file system without hard links an empty file reserves the name until it is replaced.
      let holder = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o666)
      if holder < 0, errno == EEXIST { return false }
      guard holder >= 0 else {
        throw SaveError(path: target, cause: SystemError(code: errno))
      }
      close(holder)
      do { try place(as: target) } catch {
        unlink(target)
        throw error
      }
      return true
    case let code: throw SaveError(path: target, cause: SystemError(code: code))
    }
  }

  /// Joins a folder and a name. The folder `.` is omitted.
  static func join(_ folder: String, _ name: String) -> String {
    folder == "." ? name : folder.hasSuffix("/") ? folder + name : "\(folder)/\(name)"
  }
}
