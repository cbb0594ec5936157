internal import Glibc
internal import Jobs
internal import Synchronization

/// The free space on a folder's disk.
struct DiskSpace: Sendable {
  let path: String
  /// The free bytes below which nothing is added: 24 MiB, or 1/8 of a small disk. This is enough
  /// for the database's log, which is not yet part of its file, and for transactions in progress.
  let lowWater: Int
  /// The size of the disk in bytes; 0 if unknown.
  let total: Int

  init(at path: String) {
    self.path = path
    total = Self.sizes(path)?.total ?? 0
    lowWater = min(24 << 20, total / 8)
  }

  /// The number of bytes that this process may write; `nil` if unknown.
  var free: Int? { Self.sizes(path)?.free }

  private static func sizes(_ path: String) -> (total: Int, free: Int)? {
    var status = statvfs()
    guard statvfs(path, &status) == 0 else { return nil }
    let block = Int(clamping: status.f_frsize)
    func bytes(_ blocks: fsblkcnt_t) -> Int {
      Int(clamping: blocks).multipliedReportingOverflow(by: block).partialValue
    }
    return (bytes(status.f_blocks), bytes(status.f_bavail))
  }
}

/// Disk space reserved for deletions, for the end of jobs and for the start: a file of that size.
/// If such a write finds the disk full, the file is shortened. It grows again when there is space.
///
/// SQLite writes its log in order to delete, and creates the index of the log at each start. On a
/// full disk both need the reserve.
package final class DiskReserve: Sendable {
  private struct State {
    /// The number of bytes that the file occupies.
    var held: Int
    var isLow = false
  }

  private let space: DiskSpace
  private let descriptor: Int32
  /// The size in bytes of the complete file.
  package let size: Int
  /// The number of bytes released at a time. If another process fills the disk, it gets one piece
  /// at most.
  private let piece: Int
  private let state: Mutex<State>

  /// - Parameters:
  ///   - folder: the folder of the file; only one process uses it.
  ///   - limit: the maximum size in bytes. The file never uses more than 1/16 of the disk.
  package init(in folder: String, atMost limit: Int) {
    space = DiskSpace(at: folder)
    descriptor = open(
      folder + "/reserve", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
    var status = stat()
    let isOpen = descriptor >= 0 && fstat(descriptor, &status) == 0
    size = isOpen ? min(limit, space.total / 16) & ~4095 : 0
    piece = max(64 << 10, size / 16 & ~4095)
    var held = isOpen ? min(Int(status.st_size), Int(status.st_blocks) * 512) : 0
    if held > size || held < status.st_size, isOpen {
      held = min(held, size)
      if ftruncate(descriptor, off_t(held)) != 0 { held = 0 }
    }
    state = Mutex(State(held: held))
  }

  deinit { if descriptor >= 0 { close(descriptor) } }

  /// Whether nothing may be added now: the file is incomplete, or too little is free in addition to
  /// it. Each call queries the file system.
  package var isLow: Bool {
    let free = space.free ?? .max
    return state.withLock { state in
      let least = space.lowWater + (state.isLow ? space.lowWater / 2 : 0)
      state.isLow = state.held < size || free < least
      return state.isLow
    }
  }

  package var free: Int { space.free ?? .max }

  /// Releases one piece of the reserve for the next write.
  /// - Returns: `false` if nothing is left.
  package func release() -> Bool {
    state.withLock { state in
      guard state.held > 0 else { return false }
      state.held = max(0, state.held - piece)
      state.isLow = true
      return ftruncate(descriptor, off_t(state.held)) == 0
    }
  }

  /// Extends the file as far as there is space.
  package func grow() {
    state.withLock { state in
      let spare = free - space.lowWater * 3 / 2
      let wanted = min(size - state.held, spare) & ~4095
      guard wanted > 0 else { return }
      if posix_fallocate(descriptor, off_t(state.held), off_t(wanted)) == 0 {
        state.held += wanted
      } else {
        _ = ftruncate(descriptor, off_t(state.held))
      }
    }
  }
}
