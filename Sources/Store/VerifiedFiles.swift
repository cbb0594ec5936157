internal import Glibc
internal import Jobs
internal import Synchronization

/// What the kernel tells of a file that would not stay the same were its bytes changed.
struct FileStamp: Equatable, Sendable {
  private let inode: UInt64
  let size: Int
  private let modified: Moment
  private let changed: Moment

  init(_ status: stat) {
    inode = UInt64(status.st_ino)
    size = Int(status.st_size)
    modified = Moment(status.st_mtim)
    changed = Moment(status.st_ctim)
  }

  /// Of an open file.
  init?(_ descriptor: Int32) {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return nil }
    self.init(status)
  }
}

/// When something happened to a file.
struct Moment: Comparable, Sendable {
  private let seconds: Int
  private let nanoseconds: Int

  init(_ time: timespec) {
    seconds = time.tv_sec
    nanoseconds = time.tv_nsec
  }

  static func < (a: Moment, b: Moment) -> Bool {
    (a.seconds, a.nanoseconds) < (b.seconds, b.nanoseconds)
  }
}

/// Remembers which files' bytes this process has hashed, so that it needn't again while they stay as they are.
///
/// Bounded: once `limit` are remembered, the half that was noted or asked for longest ago is forgotten at once.
final class VerifiedFiles: Sendable {
  private struct State {
    var recent: [ImageDigest: FileStamp] = [:]
    var older: [ImageDigest: FileStamp] = [:]
  }

  private let state = Mutex(State())
  private let half: Int

  init(limit: Int = 32_768) { half = max(1, limit / 2) }

  /// How many are remembered.
  var count: Int { state.withLock { $0.recent.count + $0.older.count } }

  /// Notes that a file with this stamp has the bytes that its digest tells.
  func note(_ digest: ImageDigest, _ stamp: FileStamp) {
    state.withLock { note(digest, stamp, in: &$0) }
  }

  /// Whether the bytes were hashed and the file is still the same.
  func contains(_ digest: ImageDigest, _ stamp: FileStamp) -> Bool {
    state.withLock { state in
      if let known = state.recent[digest] { return known == stamp }
      guard state.older[digest] == stamp else { return false }
      note(digest, stamp, in: &state)
      return true
    }
  }

  func forget(_ digest: ImageDigest) {
    state.withLock { state in
      state.recent[digest] = nil
      state.older[digest] = nil
    }
  }

  private func note(_ digest: ImageDigest, _ stamp: FileStamp, in state: inout State) {
    state.older[digest] = nil
    state.recent[digest] = stamp
    guard state.recent.count >= half else { return }
    state.older = state.recent
    state.recent = [:]
  }
}
