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

/// Remembers which files' bytes this process has hashed, so that it needn't again while they stay as they are. Those that
/// were noted or asked for longest ago are forgotten first.
final class VerifiedFiles: Sendable {
  private let stamps: Mutex<LRUCache<ImageDigest, FileStamp>>

  /// - Parameter limit: how many are remembered.
  init(limit: Int = 32_768) { stamps = Mutex(LRUCache(capacity: limit)) }

  /// How many are remembered.
  var count: Int { stamps.withLock { $0.count } }

  /// Notes that a file with this stamp has the bytes that its digest tells.
  func note(_ digest: ImageDigest, _ stamp: FileStamp) {
    _ = stamps.withLock { $0.set(stamp, for: digest) }
  }

  /// Whether the bytes were hashed and the file is still the same.
  func contains(_ digest: ImageDigest, _ stamp: FileStamp) -> Bool {
    stamps.withLock { $0.value(for: digest) } == stamp
  }

  func forget(_ digest: ImageDigest) { _ = stamps.withLock { $0.remove(digest) } }
}
