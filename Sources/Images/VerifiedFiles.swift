internal import Glibc
internal import Jobs
internal import Synchronization

/// The attributes of a file that change when its bytes are changed.
struct FileStamp: Equatable, Sendable {
  private let inode: UInt64
  let size: Int
  private let modified: FileTime
  private let changed: FileTime

  init(_ status: stat) {
    inode = UInt64(status.st_ino)
    size = Int(status.st_size)
    modified = FileTime(status.st_mtim)
    changed = FileTime(status.st_ctim)
  }

  /// Reads the stamp of an open file.
  init?(_ descriptor: Int32) {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return nil }
    self.init(status)
  }
}

/// A file's timestamp.
struct FileTime: Comparable, Sendable {
  private let seconds: Int
  private let nanoseconds: Int

  init(_ time: timespec) {
    seconds = time.tv_sec
    nanoseconds = time.tv_nsec
  }

  static func < (a: FileTime, b: FileTime) -> Bool {
    (a.seconds, a.nanoseconds) < (b.seconds, b.nanoseconds)
  }
}

/// A cache of the files whose bytes this process has compared with their digest. It need not read
/// them again while they are unchanged. The least recently used entries are removed first.
final class VerifiedFiles: Sendable {
  private let stamps: Mutex<LRUCache<ImageDigest, FileStamp>>

  /// - Parameter limit: the maximum number of entries.
  init(limit: Int = 32_768) { stamps = Mutex(LRUCache(capacity: limit)) }

  /// The number of entries.
  var count: Int { stamps.withLock { $0.count } }

  /// Records that a file with this stamp has the bytes of its digest.
  func record(_ digest: ImageDigest, _ stamp: FileStamp) {
    _ = stamps.withLock { $0.set(stamp, for: digest) }
  }

  /// Returns whether the bytes were verified and the file is unchanged.
  func contains(_ digest: ImageDigest, _ stamp: FileStamp) -> Bool {
    stamps.withLock { $0.value(for: digest) } == stamp
  }

  func remove(_ digest: ImageDigest) { _ = stamps.withLock { $0.remove(digest) } }
}

/// Verifications in progress. Concurrent callers share one result, so that an image is read once.
final class Verifications: Sendable {
  private struct Key: Hashable {
    var digest: ImageDigest
    var bytes: Int?
  }

  private typealias Outcome = Result<Bool, StoreError>

  private let waiting = Mutex<[Key: [CheckedContinuation<Outcome?, Never>]]>([:])

  /// The number of callers waiting for a shared result.
  var waiters: Int { waiting.withLock { $0.values.reduce(0) { $0 + $1.count } } }

  /// - Parameter verify: called by the first caller.
  func share(
    _ digest: ImageDigest, _ bytes: Int?, _ verify: () async throws(StoreError) -> Bool
  ) async throws(StoreError) -> Bool {
    let key = Key(digest: digest, bytes: bytes)
    if let outcome = await joinRunning(key) { return try outcome.get() }
    let outcome: Outcome
    do throws(StoreError) { outcome = .success(try await verify()) } catch {
      outcome = .failure(error)
    }
    let others = waiting.withLock { $0.removeValue(forKey: key) } ?? []
    for other in others { other.resume(returning: outcome) }
    return try outcome.get()
  }

  /// - Returns: the shared result; `nil` if the caller is the first and must verify.
  private func joinRunning(_ key: Key) async -> Outcome? {
    await withCheckedContinuation { continuation in
      let isFirst = waiting.withLock { waiting in
        guard waiting[key] != nil else {
          waiting[key] = []
          return true
        }
        waiting[key]?.append(continuation)
        return false
      }
      if isFirst { continuation.resume(returning: nil) }
    }
  }
}
