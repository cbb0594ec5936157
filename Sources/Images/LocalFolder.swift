internal import CLinux
internal import Executors
internal import Glibc
package import Jobs

/// Images below a local folder, named by their paths in it.
///
/// The kernel ensures that no path leaves the folder (`openat2` with `RESOLVE_BENEATH`), even if
/// the folder changes concurrently. Symbolic links are followed within the folder. If the kernel or
/// a sandbox does not support this call, no symbolic link is followed. Disk operations run on the
/// folder's own threads.
package final class LocalFolder: LocalImages {
  private let root: Int32
  private let disk: ThreadPool
  private let hasOpenat2: Bool

  /// Opens the folder. If the folder is renamed or replaced later, this object still uses the
  /// opened one.
  ///
  /// - Parameters:
  ///   - path: the folder's path.
  ///   - threads: the number of threads for disk operations.
  /// - Throws: `.unavailable` if the folder does not exist or is not accessible.
  package convenience init(_ path: String, threads: Int = 2) throws(StoreError) {
    try self.init(path, threads: threads, hasOpenat2: true)
  }

  init(_ path: String, threads: Int = 2, hasOpenat2: Bool) throws(StoreError) {
    root = Glibc.open(path, CLinux_O_PATH | O_DIRECTORY | O_CLOEXEC)
    guard root >= 0 else { throw StoreError(errno: errno, "opening \(path)") }
    disk = ThreadPool(name: "store-local", threads: max(1, threads))
    self.hasOpenat2 = hasOpenat2
  }

  deinit { close(root) }

  /// Opens the file in its current state. A later file with the same name is a different one.
  package func open(_ name: String) async throws(LocalImageError) -> StoredBytes {
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
  // Opening must neither wait for the writer of a FIFO nor make a terminal the controlling one.
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
    // EAGAIN: a part of the path was renamed concurrently.
    for _ in 0..<16 {
      let descriptor = CLinux_openBeneath(root, name, Self.flags)
      if descriptor >= 0 { return descriptor }
      switch errno {
      case EAGAIN, EINTR: continue
      case ENOSYS, EPERM: return try walk(name)
      default: throw LocalImageError(errno: errno)
      }
    }
    throw .unavailable(detail: "the folder keeps changing")
  }

  /// Opens one path component after the other, and rejects symbolic links.
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
  /// Converts the error of an attempt to open a file.
  fileprivate init(errno code: Int32) {
    switch code {
    case ENOENT, ENOTDIR, ENAMETOOLONG: self = .notFound
    case EXDEV, ELOOP: self = .outside
    // A socket, or a missing device.
    case ENXIO, ENODEV: self = .notAFile
    default: self = .unavailable(detail: String(cString: strerror(code)))
    }
  }
}
