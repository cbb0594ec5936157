internal import CLinux
internal import Executors
internal import Glibc
public import Jobs

/// The images below one folder, named by their paths in it.
///
/// The kernel sees to it that no name leaves the folder (`openat2` with `RESOLVE_BENEATH`), also while somebody changes
/// what is in it. Symbolic links are followed as long as they stay within; where the kernel or a sandbox doesn't have
/// the call, none is. Disk work runs on threads of its own.
public final class LocalFolder: LocalImages {
  private let root: Int32
  private let disk: ThreadPool
  private let hasOpenat2: Bool

  /// Opens the folder; it stays the same one when another gets its name.
  ///
  /// - Parameters:
  ///   - path: of the folder.
  ///   - threads: that wait for the disk.
  /// - Throws: `.unavailable` when there is no such folder, or it may not be entered.
  public convenience init(_ path: String, threads: Int = 2) throws(StoreError) {
    try self.init(path, threads: threads, hasOpenat2: true)
  }

  init(_ path: String, threads: Int = 2, hasOpenat2: Bool) throws(StoreError) {
    root = Glibc.open(path, CLinux_O_PATH | O_DIRECTORY | O_CLOEXEC)
    guard root >= 0 else { throw StoreError(errno: errno, "opening \(path)") }
    disk = ThreadPool(name: "store-local", threads: max(1, threads))
    self.hasOpenat2 = hasOpenat2
  }

  deinit { close(root) }

  /// The file as it is now; one that takes its place later is another.
  public func open(_ name: String) async throws(LocalImageError) -> StoredBytes {
    guard Self.mayBeWithin(name) else { throw .outside }
    let opened = await disk.run { [self] () -> Result<(Int32, Int), LocalImageError> in
      do throws(LocalImageError) { return .success(try file(name)) } catch {
        return .failure(error)
      }
    }
    let (descriptor, count) = try opened.get()
    return .file(OpenedFile(descriptor, count: count))
  }

  private static func mayBeWithin(_ name: String) -> Bool {
    let parts = name.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    return !name.utf8.contains(0)
      && parts.allSatisfy { !$0.isEmpty && !$0.elementsEqual("..".utf8) }
  }
}

extension LocalFolder {
  // Opening a FIFO must not wait for its writer, nor may a terminal become ours.
  private static let flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY

  private func file(_ name: String) throws(LocalImageError) -> (descriptor: Int32, count: Int) {
    let descriptor = try descriptor(name)
    var status = stat()
    guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
      close(descriptor)
      throw .notAFile
    }
    return (descriptor, Int(status.st_size))
  }

  private func descriptor(_ name: String) throws(LocalImageError) -> Int32 {
    guard hasOpenat2 else { return try walk(name) }
    // EAGAIN: something on the way was renamed just then.
    for _ in 0..<16 {
      let descriptor = CLinux_openBeneath(root, name, Self.flags)
      if descriptor >= 0 { return descriptor }
      switch errno {
      case EAGAIN, EINTR: continue
      case ENOSYS, EPERM: return try walk(name)
      default: throw LocalImageError(errno: errno)
      }
    }
    throw .unavailable(detail: "the folder changes all the time")
  }

  /// Opens part after part, none of which may be a symbolic link.
  private func walk(_ name: String) throws(LocalImageError) -> Int32 {
    var folder = root
    defer { if folder != root { close(folder) } }
    let parts = name.split(separator: "/")
    for part in parts.dropLast() {
      let next = openat(folder, String(part), CLinux_O_PATH | O_NOFOLLOW | O_CLOEXEC)
      guard next >= 0 else { throw LocalImageError(errno: errno) }
      if folder != root { close(folder) }
      folder = next
      var status = stat()
      guard fstat(next, &status) == 0 else { throw LocalImageError(errno: errno) }
      guard status.st_mode & S_IFMT != S_IFLNK else { throw .outside }
    }
    let descriptor = openat(folder, String(parts[parts.count - 1]), Self.flags | O_NOFOLLOW)
    guard descriptor >= 0 else { throw LocalImageError(errno: errno) }
    return descriptor
  }
}

extension LocalImageError {
  /// What it means that a name could not be opened.
  fileprivate init(errno code: Int32) {
    switch code {
    case ENOENT, ENOTDIR, ENAMETOOLONG: self = .notFound
    case EXDEV, ELOOP: self = .outside
    // A socket, or a device that isn't there.
    case ENXIO, ENODEV: self = .notAFile
    default: self = .unavailable(detail: String(cString: strerror(code)))
    }
  }
}
