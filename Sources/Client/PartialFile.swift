internal import Glibc

/// Why an image can't be written: for people, with its path.
struct SaveError: Error, Equatable {
  let path: String
  let cause: SystemError

  var text: String { "\(PlainText.line(path)): \(cause.text)" }
}

/// A file that is being written, under a name that means nothing, so that no half image ever has its final one. What was
/// not placed is removed.
final class PartialFile {
  let descriptor: Int32
  private let folder: String
  private let path: String
  private var isPlaced = false

  /// - Parameters:
  ///   - folder: where it will be placed, so that placing is a change of names alone.
  ///   - isPrivate: whether nobody else may read it: it is not to be placed.
  init(in folder: String, isPrivate: Bool = false) throws(SaveError) {
    self.folder = folder
    path = Self.join(
      folder, ".imagefetch-\(String(UInt64.random(in: .min ... .max), radix: 36)).part")
    // The rights that the user's umask leaves any new file.
    let rights: mode_t = isPrivate ? 0o600 : 0o666
    descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, rights)
    guard descriptor >= 0 else {
      isPlaced = true
      throw SaveError(path: folder, cause: SystemError(code: errno))
    }
    // Its bytes are all that is wanted of it.
    if isPrivate {
      unlink(path)
      isPlaced = true
    }
  }

  deinit {
    if descriptor >= 0 { close(descriptor) }
    if !isPlaced { unlink(path) }
  }

  /// Forgets what was written.
  func restart() throws(SaveError) {
    guard ftruncate(descriptor, 0) == 0, lseek(descriptor, 0, SEEK_SET) == 0 else {
      throw SaveError(path: path, cause: SystemError(code: errno))
    }
  }

  /// A name must not last longer than its bytes do: a power cut would leave an empty image.
  private func sync(for target: String) throws(SaveError) {
    // Some file systems have no such call.
    guard fdatasync(descriptor) == 0 || errno == EINVAL || errno == ENOSYS else {
      throw SaveError(path: target, cause: SystemError(code: errno))
    }
  }

  /// Gives it its name, in the place of what had it.
  func place(as target: String) throws(SaveError) {
    try sync(for: target)
    guard rename(path, target) == 0 else {
      throw SaveError(path: target, cause: SystemError(code: errno))
    }
    isPlaced = true
  }

  /// Gives it the name, or that with the next free number.
  /// - Parameter name: below the folder; folders in it are made.
  /// - Returns: the path.
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
      // Others may look for the same name at the same time.
      for number in found..<found + 8 {
        let target = Self.join(folder, FileName.numbered(name, number))
        if try claim(target) { return target }
      }
    }
    throw SaveError(path: Self.join(folder, name), cause: SystemError(code: EEXIST))
  }

  /// - Returns: whether it has the name now; false where something else had it.
  private func claim(_ target: String) throws(SaveError) -> Bool {
    if link(path, target) == 0 {
      isPlaced = true
      unlink(path)
      return true
    }
    switch errno {
    case EEXIST: return false
    case EPERM, EOPNOTSUPP, ENOSYS, EMLINK:
      // A file system without links: an empty file holds the name until ours takes its place.
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

  /// Leaves out the folder that one stands in.
  static func join(_ folder: String, _ name: String) -> String {
    folder == "." ? name : folder.hasSuffix("/") ? folder + name : "\(folder)/\(name)"
  }
}
