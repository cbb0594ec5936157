internal import Glibc
internal import Jobs

/// Partial transfers: their files and records.
extension ImageFolder {
  private static let suffix = ".json"

  /// A partial transfer of an earlier run: its bytes and record.
  struct FoundPartial: Sendable {
    var name: String
    var key: Fingerprint
    var bytes: Int
  }

  /// Finds the partial transfers of earlier runs, the oldest first. Removes records without bytes
  /// and bytes without a record.
  func findPartials() throws(StoreError) -> [FoundPartial] {
    let walk = try walk("partials")
    var names: Set<String> = []
    while let name = walk.next() { names.insert(name) }
    var found: [(FoundPartial, modified: FileTime)] = []
    for name in names where !name.hasSuffix(Self.suffix) && !names.contains(name + Self.suffix) {
      unlinkat(partials, name, 0)
    }
    for record in names where record.hasSuffix(Self.suffix) {
      let name = String(record.dropLast(Self.suffix.count))
      if let left = foundPartial(name) { found.append(left) } else { deletePartial(name) }
    }
    found.sort { $0.modified < $1.modified }
    return found.map(\.0)
  }

  private func foundPartial(_ name: String) -> (FoundPartial, modified: FileTime)? {
    guard !name.isEmpty, let record = partialRecord(of: name) else { return nil }
    var (told, status) = (stat(), stat())
    guard fstatat(partials, name + Self.suffix, &told, AT_SYMLINK_NOFOLLOW) == 0,
      fstatat(partials, name, &status, AT_SYMLINK_NOFOLLOW) == 0
        || fstatat(incoming, name, &status, AT_SYMLINK_NOFOLLOW) == 0,
      status.st_mode & S_IFMT == S_IFREG, status.st_size > 0
    else { return nil }
    let left = FoundPartial(name: name, key: record.key, bytes: Int(status.st_size))
    // The file of the bytes may be older or newer than the record.
    return (left, max(FileTime(told.st_mtim), FileTime(status.st_mtim)))
  }

  /// Moves a transfer's bytes from `incoming/` to `partials/`.
  /// - Returns: whether they are in `partials/` now.
  func movePartialToStorage(_ name: String) -> Bool {
    if renameat(incoming, name, partials, name) == 0 { return true }
    return errno == ENOENT && faccessat(partials, name, F_OK, 0) == 0
  }

  /// Moves a transfer's bytes from `partials/` back to `incoming/`.
  func movePartialToIncoming(_ name: String) -> Bool {
    renameat(partials, name, incoming, name) == 0
  }

  /// Opens a transfer's bytes for reading and writing; returns `nil` if they do not exist.
  func openPartial(_ name: String) throws(StoreError) -> (descriptor: Int32, size: Int)? {
    let descriptor = openat(partials, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard descriptor >= 0 else {
      guard errno != ENOENT else { return nil }
      throw StoreError(errno: errno, "opening partials/\(name)")
    }
    var status = stat()
    guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
      close(descriptor)
      return nil
    }
    return (descriptor, Int(status.st_size))
  }

  /// Removes a transfer's bytes, in either folder, and its record.
  func deletePartial(_ name: String) {
    unlinkat(partials, name, 0)
    unlinkat(incoming, name, 0)
    deleteRecord(of: name)
  }

  func deleteRecord(of name: String) { unlinkat(partials, name + Self.suffix, 0) }

  func isRecorded(_ name: String) -> Bool {
    faccessat(partials, name + Self.suffix, F_OK, 0) == 0
  }

  /// Replaces a transfer's record atomically: after a crash, either the old or the new one is
  /// complete.
  func save(_ record: PartialRecord, of name: String, synced: Bool) throws(StoreError) {
    let (path, new) = (name + Self.suffix, name + ".new")
    let flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC
    let descriptor = openat(partials, new, flags, 0o600)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "making partials/\(new)") }
    defer { close(descriptor) }
    var code = Self.write(record.encoded(), to: descriptor)
    if code == 0, synced, fsync(descriptor) != 0 { code = errno }
    if code == 0, renameat(partials, new, partials, path) != 0 { code = errno }
    guard code != 0 else { return }
    unlinkat(partials, new, 0)
    throw StoreError(errno: code, "writing partials/\(path)")
  }

  /// Reads a transfer's record; returns `nil` if it is missing or invalid.
  func partialRecord(of name: String) -> PartialRecord? {
    let flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
    let descriptor = openat(partials, name + Self.suffix, flags)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    return PartialRecord(encoded: Self.read(descriptor, at: 0, count: 1 << 16))
  }
}
