internal import Glibc
internal import Jobs
internal import Logging
internal import Synchronization

/// The folder below which images' files lie, each reached from the folder's own descriptor:
///
///     incoming/7f3a-12       being written
///     partials/5c01-7        set aside unfinished, to be continued
///     partials/5c01-7.json   what these are: a PartialRecord; beside the bytes of one being written as well
///     c5/9d…e1               published; the name is the digest in hexadecimal digits, its first two the folder's
///
/// Every method blocks.
final class ImageFolder: Sendable {
  let incoming: Int32
  let partials: Int32
  /// The published files whose bytes this process has seen whole.
  let verified = VerifiedFiles()
  private let log = Logger(label: "store")
  private let root: Int32
  private let isDurable: Bool
  private let lock: FolderLock
  /// Held while a published name is given or taken away after a look at what it names.
  private let naming = Mutex(())
  /// One for each folder that published files are in.
  private let shelves = fanOut.map { _ in Shelf() }

  private final class Shelf: Sendable {
    /// Held from the moment that a name is given until it is durable. Where syncing has once failed it is not known which
    /// names are: the system tells of what it could not write only once, and takes it for written after that.
    let hasFailed = Mutex(false)
  }

  /// Opens the folder, making it and those within where there are none.
  init(_ path: String, isDurable: Bool = true) throws(StoreError) {
    self.isDurable = isDurable
    try StorageFolder.make(path, isDurable: isDurable)
    lock = try FolderLock(path + "/.lock")
    root = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard root >= 0 else { throw StoreError(errno: errno, "opening \(path)") }
    incoming = try Self.folder("incoming", in: root)
    partials = try Self.folder("partials", in: root)
    // Where nothing outlives the process, the first image of each makes it: 256 of them would take longer than an image.
    if isDurable { for name in Self.fanOut { close(try Self.folder(name, in: root)) } }
    guard !isDurable || fsync(root) == 0 else { throw StoreError(errno: errno, "syncing \(path)") }
  }

  deinit {
    close(partials)
    close(incoming)
    close(root)
  }

  /// The folders that published files are spread over.
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

  /// The digest that a published file's path tells.
  static func digest(folder: String, name: String) -> ImageDigest? {
    guard let digest = ImageDigest(hex: folder + name) else { return nil }
    return digest.hex == folder + name ? digest : nil
  }
}

/// Files that are being written.
extension ImageFolder {
  /// A new file, for its maker alone.
  func create(_ name: String) throws(StoreError) -> Int32 {
    let flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
    let descriptor = openat(incoming, name, flags, 0o600)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "making incoming/\(name)") }
    return descriptor
  }

  /// A file of these bytes that has no name.
  /// - Parameter name: which it has while it is written: nobody else may use it.
  func file(_ bytes: [UInt8], calledAtFirst name: String) throws(StoreError) -> OpenedFile {
    let file = OpenedFile(try create(name), count: bytes.count)
    discard(name)
    let code = Self.write(bytes, to: file.descriptor)
    guard code == 0 else { throw StoreError(errno: code, "writing an image that is sent") }
    return file
  }

  /// Reads a part of an open file.
  /// - Returns: fewer bytes than asked for at the file's end, or where it can't be read.
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

  /// Whether a file of so many bytes could be made.
  /// - Parameter name: of the file that asks for them; it is gone afterwards.
  func hasRoom(_ bytes: Int, asking name: String) -> Bool {
    guard let descriptor = try? create(name) else { return false }
    defer {
      discard(name)
      close(descriptor)
    }
    return posix_fallocate(descriptor, 0, off_t(bytes)) == 0
  }

  func discard(_ name: String) { unlinkat(incoming, name, 0) }

  /// Gives a finished file its digest for a name, and makes both durable.
  ///
  /// The bytes are on the disk before the name is there, so that no crash leaves a name with other bytes.
  func publish(_ name: String, _ descriptor: Int32, as digest: ImageDigest) throws(StoreError) {
    guard !isDurable || fsync(descriptor) == 0 else {
      throw StoreError(errno: errno, "syncing an image")
    }
    let (folder, path) = Self.path(digest)
    try shelf(folder).hasFailed.withLock { hasFailed throws(StoreError) in
      let isNew = faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0
      try rename(name, to: path, in: folder)
      // Its writer has hashed these bytes. The stamp is taken after the renaming, which changes it.
      if let stamp = FileStamp(descriptor) { verified.note(digest, stamp) }
      do throws(StoreError) { try sync(folder) } catch {
        hasFailed = true
        // Nobody, at a later start either, is to find a name that a power cut may take away.
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

  private func shelf(_ folder: String) -> Shelf { shelves[Int(folder, radix: 16) ?? 0] }

  /// Whether the image is there already, whole. Then its name is made durable, as whoever published it may not have
  /// come that far; where that can't be relied on, or it can't be read, the file is to be published anew.
  func holds(_ digest: ImageDigest, bytes: Int) throws(StoreError) -> Bool {
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

/// Files that are published.
extension ImageFolder {
  /// A published file, open to be read from.
  struct OpenImage: Sendable {
    var descriptor: Int32
    var count: Int
    /// Whether this process has hashed these bytes.
    var isVerified: Bool
  }

  /// Nil when there is no such image.
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

  /// Whether the image is there, whole and unharmed; what isn't so is removed. Bytes are read the first time only.
  /// - Parameter bytes: how many there must be; nil: as many as the digest is of.
  func verify(_ digest: ImageDigest, bytes: Int? = nil) throws(StoreError) -> Bool {
    let path = Self.path(digest).path
    var status = stat()
    guard fstatat(root, path, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
      guard errno != ENOENT else { return false }
      throw StoreError(errno: errno, "looking at an image")
    }
    let stamp = FileStamp(status)
    if status.st_mode & S_IFMT == S_IFREG, stamp.size == bytes ?? stamp.size {
      if verified.contains(digest, stamp) { return true }
      if try isUnharmed(path, digest, stamp) { return true }
    }
    log.warning("an image's bytes have changed on disk", metadata: ["image": "\(digest.hex)"])
    try remove(path, ifStill: stamp)
    return false
  }

  private func isUnharmed(
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
    // Replaced or written to meanwhile, the next look reads it again.
    if FileStamp(descriptor) == stamp { verified.note(digest, stamp) }
    return true
  }

  /// A good file that was published meanwhile under the same name must stay.
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
    verified.forget(digest)
    guard unlinkat(root, Self.path(digest).path, 0) == 0 || errno == ENOENT else {
      throw StoreError(errno: errno, "removing an image")
    }
  }

  /// Removes every file that an earlier run was writing.
  /// - Returns: how many there were.
  func clearIncoming(but run: String) throws(StoreError) -> Int {
    let walk = try FolderWalk("incoming", in: root)
    var removed = 0
    while let name = walk.next() {
      // What is continued keeps the name that an earlier run gave it, and its record.
      if name.hasPrefix(run) || isRecorded(name) { continue }
      if unlinkat(incoming, name, 0) == 0 { removed += 1 }
    }
    return removed
  }

  func walk(_ folder: String) throws(StoreError) -> FolderWalk { try FolderWalk(folder, in: root) }

  /// Through one of the folders of published files; nil where no image has made it yet.
  func walk(published folder: String) throws(StoreError) -> FolderWalk? {
    if !isDurable, faccessat(root, folder, F_OK, AT_SYMLINK_NOFOLLOW) != 0, errno == ENOENT {
      return nil
    }
    return try walk(folder)
  }
}

/// Goes through a folder's names one after the other; used by one task at a time.
final class FolderWalk: @unchecked Sendable {  // its user sees to it
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

  /// The next name; nil after the last.
  func next() -> String? {
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { return name }
    }
    return nil
  }

  /// Up to `count` further names; none after the last.
  func next(_ count: Int) -> [String] {
    var names: [String] = []
    while names.count < count, let name = next() { names.append(name) }
    return names
  }
}
