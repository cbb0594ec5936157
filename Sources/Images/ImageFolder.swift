internal import Glibc
internal import Jobs
internal import Logging
internal import Synchronization

/// The folder that contains the image files. All paths are relative to the descriptor of this
/// folder:
///
///     incoming/7f3a-12       a file being written
///     partials/5c01-7        a partial transfer that can be resumed
///     partials/5c01-7.json   its PartialRecord, also while its bytes are being written in incoming/
///     c5/9d…e1               a stored image; folder and name form the digest in hex
///
/// Every method blocks.
final class ImageFolder: Sendable {
  let incoming: Int32
  let partials: Int32
  /// The image files that this process has compared with their digest.
  let verified = VerifiedFiles()
  private let log = Logger(label: "store")
  private let root: Int32
  private let isDurable: Bool
  private let lock: FolderLock
  /// Held while a stored name is created or removed after its file was checked.
  private let naming = Mutex(())
  /// One element for each folder of stored images.
  private let shelves = fanOut.map { _ in SyncState() }

  private final class SyncState: Sendable {
    /// Held from the renaming of a file until the folder is synced. True after a failed sync: then
    /// it is unknown which names are durable, because the system reports a write error only once.
    let hasFailed = Mutex(false)
  }

  /// Opens the folder; creates it and its subfolders if missing.
  init(_ path: String, isDurable: Bool = true) throws(StoreError) {
    self.isDurable = isDurable
    try StorageFolder.create(path, isDurable: isDurable)
    lock = try FolderLock(path + "/.lock")
    root = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard root >= 0 else { throw StoreError(errno: errno, "opening \(path)") }
    incoming = try Self.folder("incoming", in: root)
    partials = try Self.folder("partials", in: root)
    // A temporary folder gets its subfolders on demand, because creating 256 of them takes longer
    // than storing an image.
    if isDurable { for name in Self.fanOut { close(try Self.folder(name, in: root)) } }
    guard !isDurable || fsync(root) == 0 else { throw StoreError(errno: errno, "syncing \(path)") }
  }

  deinit {
    close(partials)
    close(incoming)
    close(root)
  }

  /// The names of the folders of stored images.
  static let fanOut = (0..<256).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }

  private static func folder(_ name: String, in parent: Int32) throws(StoreError) -> Int32 {
    guard mkdirat(parent, name, 0o700) == 0 || errno == EEXIST else {
      throw StoreError(errno: errno, "making \(name)/")
    }
    let descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "opening \(name)/") }
    return descriptor
  }

  private static func path(_ digest: ImageDigest) -> (folder: String, path: String) {
    let hex = digest.hex
    return (String(hex.prefix(2)), hex.prefix(2) + "/" + hex.dropFirst(2))
  }

  /// The digest in the path of a stored image.
  static func digest(folder: String, name: String) -> ImageDigest? {
    guard let digest = ImageDigest(hex: folder + name) else { return nil }
    return digest.hex == folder + name ? digest : nil
  }
}

/// Files being written.
extension ImageFolder {
  /// Creates a new file, which only the caller uses.
  func create(_ name: String) throws(StoreError) -> Int32 {
    let flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
    let descriptor = openat(incoming, name, flags, 0o600)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "making incoming/\(name)") }
    return descriptor
  }

  /// Creates an unlinked file with these bytes.
  /// - Parameter name: the file's name until it is unlinked; it must be unused.
  func unnamedFile(_ bytes: [UInt8], temporaryName name: String) throws(StoreError) -> OpenedFile {
    let file = OpenedFile(try create(name), count: bytes.count)
    discard(name)
    let code = Self.write(bytes, to: file.descriptor)
    guard code == 0 else { throw StoreError(errno: code, "writing a temporary image file") }
    return file
  }

  /// Reads a part of an open file.
  /// - Returns: fewer bytes than `count` at the end of the file or after a read error.
  static func read(_ descriptor: Int32, at offset: Int, count: Int) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      let room = UnsafeMutableRawBufferPointer(buffer)
      while filled < count {
        let rest = UnsafeMutableRawBufferPointer(rebasing: room[filled...])
        let got = pread(descriptor, rest.baseAddress, rest.count, off_t(offset + filled))
        if got < 0 && errno == EINTR { continue }
        if got <= 0 { return }
        filled += got
      }
    }
  }

  /// Writes all bytes to an open file.
  /// - Returns: 0, or `errno`.
  static func write(_ bytes: [UInt8], to descriptor: Int32) -> Int32 {
    bytes.withUnsafeBytes { bytes -> Int32 in
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = UnsafeRawBufferPointer(rebasing: rest)
        let written = Glibc.write(descriptor, piece.baseAddress, piece.count)
        if written < 0 && errno != EINTR { return errno }
        rest = rest.dropFirst(max(0, written))
      }
      return 0
    }
  }

  /// Returns whether a file of `bytes` bytes could be created.
  /// - Parameter name: the name of a temporary file, which is removed afterwards.
  func canAllocate(_ bytes: Int, temporaryName name: String) -> Bool {
    guard let descriptor = try? create(name) else { return false }
    defer {
      discard(name)
      close(descriptor)
    }
    return posix_fallocate(descriptor, 0, off_t(bytes)) == 0
  }

  func discard(_ name: String) { unlinkat(incoming, name, 0) }

  /// Renames a complete file to its digest and makes it durable.
  ///
  /// The bytes are synced before the renaming, so that after a crash no name refers to other bytes.
  func publish(_ name: String, _ descriptor: Int32, as digest: ImageDigest) throws(StoreError) {
    guard !isDurable || fsync(descriptor) == 0 else {
      throw StoreError(errno: errno, "syncing an image")
    }
    let (folder, path) = Self.path(digest)
    try shelf(folder).hasFailed.withLock { hasFailed throws(StoreError) in
      let isNew = faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0
      try rename(name, to: path, in: folder)
      // The caller has hashed these bytes. The stamp is read after the renaming, which changes it.
      if let stamp = FileStamp(descriptor) { verified.record(digest, stamp) }
      do throws(StoreError) { try sync(folder) } catch {
        hasFailed = true
        // Remove the new name: a power failure could undo it, so nothing may rely on it.
        if isNew { try? remove(digest) }
        throw error
      }
    }
  }

  private func rename(_ name: String, to path: String, in folder: String) throws(StoreError) {
    var code = naming.withLock { _ in renameat(incoming, name, root, path) == 0 ? 0 : errno }
    if code == ENOENT, !isDurable {
      close(try Self.folder(folder, in: root))
      code = naming.withLock { _ in renameat(incoming, name, root, path) == 0 ? 0 : errno }
    }
    guard code == 0 else { throw StoreError(errno: code, "publishing an image") }
  }

  private func shelf(_ folder: String) -> SyncState { shelves[Int(folder, radix: 16) ?? 0] }

  /// Returns whether the image is stored and intact. Also syncs its folder, because the process
  /// that stored it may have stopped before that. Returns `false` if an earlier sync failed or the
  /// file can't be read: then the caller must store the file again.
  func isStored(_ digest: ImageDigest, bytes: Int) throws(StoreError) -> Bool {
    guard (try? verify(digest, bytes: bytes)) == true else { return false }
    let folder = Self.path(digest).folder
    return try shelf(folder).hasFailed.withLock { hasFailed throws(StoreError) in
      guard !hasFailed else { return false }
      do throws(StoreError) { try sync(folder) } catch {
        hasFailed = true
        throw error
      }
      return true
    }
  }

  private func sync(_ folder: String) throws(StoreError) {
    guard isDurable else { return }
    let descriptor = openat(root, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "opening \(folder)/") }
    defer { close(descriptor) }
    guard fsync(descriptor) == 0 else { throw StoreError(errno: errno, "syncing \(folder)/") }
  }
}

/// Stored images.
extension ImageFolder {
  /// A stored image's file, open for reading.
  struct OpenImage: Sendable {
    var descriptor: Int32
    var count: Int
    /// Whether this process has compared the bytes with the digest.
    var isVerified: Bool
  }

  /// Returns `nil` if the image does not exist.
  func open(_ digest: ImageDigest) throws(StoreError) -> OpenImage? {
    let path = Self.path(digest).path
    let descriptor = openat(root, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else {
      guard errno != ENOENT else { return nil }
      throw StoreError(errno: errno, "opening an image")
    }
    var status = stat()
    guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
      close(descriptor)
      throw .unavailable(detail: "\(path) is not a file")
    }
    return OpenImage(
      descriptor: descriptor, count: status.st_size,
      isVerified: verified.contains(digest, FileStamp(status)))
  }

  /// Returns whether the image's file exists and matches its digest. A corrupt file is removed. The
  /// bytes are read only the first time.
  /// - Parameter bytes: the expected size; `nil` to check the digest only.
  func verify(_ digest: ImageDigest, bytes: Int? = nil) throws(StoreError) -> Bool {
    let path = Self.path(digest).path
    var status = stat()
    guard fstatat(root, path, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
      guard errno != ENOENT else { return false }
      throw StoreError(errno: errno, "checking an image file")
    }
    let stamp = FileStamp(status)
    if status.st_mode & S_IFMT == S_IFREG, stamp.size == bytes ?? stamp.size {
      if verified.contains(digest, stamp) { return true }
      if try isIntact(path, digest, stamp) { return true }
    }
    log.warning("an image's bytes have changed on disk", metadata: ["image": "\(digest.hex)"])
    try remove(path, ifStill: stamp)
    return false
  }

  private func isIntact(
    _ path: String, _ digest: ImageDigest, _ stamp: FileStamp
  ) throws(StoreError) -> Bool {
    let descriptor = openat(root, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else {
      guard errno != ENOENT && errno != ELOOP else { return false }
      throw StoreError(errno: errno, "opening an image")
    }
    defer { close(descriptor) }
    var hash = PrefixHash()
    guard try hash.read(descriptor, upTo: stamp.size), hash.digest == digest else { return false }
    // If the file changed meanwhile, the next check reads it again.
    if FileStamp(descriptor) == stamp { verified.record(digest, stamp) }
    return true
  }

  /// Removes a corrupt file, unless it was replaced by another one under the same name meanwhile.
  private func remove(_ path: String, ifStill harmed: FileStamp) throws(StoreError) {
    let code = naming.withLock { _ in
      var status = stat()
      guard fstatat(root, path, &status, AT_SYMLINK_NOFOLLOW) == 0, FileStamp(status) == harmed
      else { return Int32(0) }
      return unlinkat(root, path, 0) == 0 ? 0 : errno
    }
    guard code == 0 || code == ENOENT else { throw StoreError(errno: code, "removing an image") }
  }

  func remove(_ digest: ImageDigest) throws(StoreError) {
    verified.remove(digest)
    guard unlinkat(root, Self.path(digest).path, 0) == 0 || errno == ENOENT else {
      throw StoreError(errno: errno, "removing an image")
    }
  }

  /// Removes the files that an earlier run was writing.
  /// - Returns: the number of removed files.
  func clearIncoming(exceptRun run: String) throws(StoreError) -> Int {
    let walk = try FolderWalk("incoming", in: root)
    var removed = 0
    while let name = walk.next() {
      // A resumed transfer keeps the file name of the earlier run, and its record.
      if name.hasPrefix(run) || isRecorded(name) { continue }
      if unlinkat(incoming, name, 0) == 0 { removed += 1 }
    }
    return removed
  }

  func walk(_ folder: String) throws(StoreError) -> FolderWalk { try FolderWalk(folder, in: root) }

  /// Iterates over a folder of stored images; `nil` if the folder does not exist yet.
  func walk(published folder: String) throws(StoreError) -> FolderWalk? {
    if !isDurable, faccessat(root, folder, F_OK, AT_SYMLINK_NOFOLLOW) != 0, errno == ENOENT {
      return nil
    }
    return try walk(folder)
  }
}

/// Iterates over the names in a folder. Only one task uses it at a time.
final class FolderWalk: @unchecked Sendable {  // used by one task
  private let stream: OpaquePointer

  init(_ name: String, in parent: Int32) throws(StoreError) {
    let descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    guard descriptor >= 0, let stream = fdopendir(descriptor) else {
      let code = errno
      if descriptor >= 0 { close(descriptor) }
      throw StoreError(errno: code, "opening \(name)/")
    }
    self.stream = stream
  }

  deinit { closedir(stream) }

  /// Returns the next name; `nil` after the last.
  func next() -> String? {
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { return name }
    }
    return nil
  }

  /// Returns up to `count` further names; none after the last.
  func next(_ count: Int) -> [String] {
    var names: [String] = []
    while names.count < count, let name = next() { names.append(name) }
    return names
  }
}
