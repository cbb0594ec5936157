internal import Executors
internal import Foundation
internal import Glibc
public import Jobs
internal import Synchronization

/// Keeps each image in a file named by its digest, for one service.
///
/// An image is written beside the others, synced and renamed, so that a name always stands for whole bytes. Disk
/// work runs on threads of the store's own.
public final class FileImageStore: ImageStore {
  /// Where the files are, and how many threads wait for the disk.
  public struct Configuration: Sendable {
    /// The folder; made where there is none. Nothing else may write into it.
    public var path: String
    /// Threads that wait for the disk: so many images can be synced at the same time.
    public var threads = 4
    /// Of the unfinished transfers that are kept, all together; 0 keeps none.
    public var maxPartialBytes = 500_000_000
    /// Whether published images outlive a crash of the machine; not where the folder goes with the process anyway.
    public var isDurable = true
    /// Tells one run of the system from another.
    var bootIDPath = "/proc/sys/kernel/random/boot_id"

    /// A folder at `path`, everything else as it usually is.
    public init(path: String) { self.path = path }
  }

  let folder: ImageFolder
  let partials: PartialFolder
  let disk: ThreadPool
  private let count = Atomic<UInt64>(0)
  /// Names of this run's unfinished files differ from those that an earlier one left behind.
  private let run = String(UInt64.random(in: 0 ... .max), radix: 16) + "-"

  /// Opens the folder, and finds the unfinished transfers that an earlier run left. Blocks for some milliseconds.
  ///
  /// - Throws: `.unavailable` when another service uses the folder or it can't be used; `.full` when there is no room.
  public init(_ configuration: Configuration) throws(StoreError) {
    folder = try ImageFolder(configuration.path, isDurable: configuration.isDurable)
    partials = PartialFolder(
      folder, maxBytes: configuration.maxPartialBytes, bootIDPath: configuration.bootIDPath)
    try partials.adopt()
    disk = ThreadPool(name: "store-images", threads: max(1, configuration.threads))
  }

  /// Needs no disk yet: the file is made once there are bytes to put into it.
  public func stage() async throws(StoreError) -> any StagedImage {
    let number = count.add(1, ordering: .relaxed).newValue
    let name = run + String(number, radix: 16)
    return StagedFile(name: name, in: partials, disk: disk)
  }

  /// The image's file, open for reading.
  public func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    let opened = try await disk.perform { [folder] () throws(StoreError) in try folder.open(digest)
    }
    guard let (descriptor, count) = opened else { return nil }
    return StoredBytes(
      descriptor: descriptor, count: count,
      reader: { ImageFolder.read(descriptor, at: $0, count: $1) }, close: { close(descriptor) })
  }

  /// Reads the bytes and compares them with their digest, once as long as the file stays as it is; from then on a look
  /// at the file is enough.
  public func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool {
    try await disk.perform { [folder] () throws(StoreError) in
      try folder.verify(digest, bytes: bytes)
    }
  }

  /// Removes the file. Not synced: what comes back with the power is swept at the next start.
  public func remove(_ digest: ImageDigest) async throws(StoreError) {
    try await disk.perform { [folder] () throws(StoreError) in try folder.remove(digest) }
  }

  /// What is being staged meanwhile is left alone. Files whose names are no digests are left alone: they aren't ours.
  public func sweep(_ isWanted: @Sendable (ImageDigest) async throws(StoreError) -> Bool)
    async throws(StoreError) -> Int
  {
    var removed = try await disk.perform { [folder, run] () throws(StoreError) in
      try folder.clearIncoming(but: run)
    }
    for name in ImageFolder.fanOut {
      let walk = try await disk.perform { [folder] () throws(StoreError) in try folder.walk(name) }
      while true {
        let files = await disk.run { walk.next(256) }
        if files.isEmpty { break }
        for file in files {
          guard let digest = ImageFolder.digest(folder: name, name: file),
            try await !isWanted(digest)
          else { continue }
          try await remove(digest)
          removed += 1
        }
      }
    }
    return removed
  }
}

extension ThreadPool {
  /// Runs `body` on one of the threads and hands on what it throws.
  func perform<Value: Sendable>(
    _ body: @escaping @Sendable () throws(StoreError) -> Value
  ) async throws(StoreError) -> Value {
    try await run { () -> Result<Value, StoreError> in
      do throws(StoreError) { return .success(try body()) } catch { return .failure(error) }
    }.get()
  }
}
