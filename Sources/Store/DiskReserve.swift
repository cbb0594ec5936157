internal import Glibc
internal import Jobs
internal import Synchronization

/// How much is free on the disk of a folder.
struct DiskSpace: Sendable {
  let path: String
  /// Nothing is added while fewer bytes are free: 24 MiB, or 1/8 of a small disk. The log of the database, which is not yet
  /// part of its file, and the transactions of a moment fit into that.
  let lowWater: Int
  /// Bytes of the disk; 0 where that isn't known.
  let total: Int

  init(at path: String) {
    self.path = path
    total = Self.sizes(path)?.total ?? 0
    lowWater = min(24 << 20, total / 8)
  }

  /// Bytes that this process may write; nil where that isn't known.
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

/// Space that only deletions, the ends of jobs and the start may use: a file of that size. It is cut when one of their writes
/// finds the disk full, and grows again once there is space.
///
/// SQLite has to write its log in order to delete, and it creates the index of the log at each start. On a disk without a free
/// byte both need the reserve.
final class DiskReserve: Sendable {
  private struct State {
    /// Bytes that the file has on the disk.
    var held: Int
    var isLow = false
  }

  private let space: DiskSpace
  private let descriptor: Int32
  /// Bytes of the complete file.
  let size: Int
  /// Bytes released at a time, so that another process that fills the disk gets at most one piece.
  private let piece: Int
  private let state: Mutex<State>

  /// - Parameters:
  ///   - folder: where the file is; only one process has it.
  ///   - limit: of its bytes. It never takes more than 1/16 of the disk.
  init(in folder: String, atMost limit: Int) {
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

  /// Whether nothing may be added now: the file is not complete, or too little is free in addition to it. Asks the system each time.
  var isLow: Bool {
    let free = space.free ?? .max
    return state.withLock { state in
      let least = space.lowWater + (state.isLow ? space.lowWater / 2 : 0)
      state.isLow = state.held < size || free < least
      return state.isLow
    }
  }

  /// Free bytes of the disk, without the reserve.
  var free: Int { space.free ?? .max }

  /// Releases a piece of the space for the next write.
  /// - Returns: false where there is none left.
  func release() -> Bool {
    state.withLock { state in
      guard state.held > 0 else { return false }
      state.held = max(0, state.held - piece)
      state.isLow = true
      return ftruncate(descriptor, off_t(state.held)) == 0
    }
  }

  /// Completes the file as far as there is space for it.
  func grow() {
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
