internal import Executors
internal import Foundation
internal import Glibc
public import Jobs

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
    /// Whether an earlier run may have left images: a folder that is made for one process alone is not looked through.
    public var isSwept = true
    /// So many bytes of a transfer that takes less than half a second may be without a record of whose they are.
    var maxUnrecordedBytes = 1 << 20
    /// Tells one run of the system from another.
    var bootIDPath = "/proc/sys/kernel/random/boot_id"

    /// A folder at `path`, everything else as it usually is.
    public init(path: String) { self.path = path }
  }

  private let space: DiskSpace
  let folder: ImageFolder
  let disk: ThreadPool
  /// Beside the images, in the same folder.
  public let spool: FileSpool
  private let verifications = Verifications()
  private let isSwept: Bool

  /// Opens the folder, and finds the unfinished transfers that an earlier run left. Blocks for some milliseconds.
  ///
  /// - Throws: `.unavailable` when another service uses the folder or it can't be used; `.full` when there is no room.
  public init(_ configuration: Configuration) throws(StoreError) {
    folder = try ImageFolder(configuration.path, isDurable: configuration.isDurable)
    space = DiskSpace(at: configuration.path)
    let partials = PartialFolder(
      folder, maxBytes: configuration.maxPartialBytes,
      maxUnrecordedBytes: configuration.maxUnrecordedBytes, bootIDPath: configuration.bootIDPath)
    try partials.adopt()
    disk = ThreadPool(name: "store-images", threads: max(1, configuration.threads))
    spool = FileSpool(partials, disk: disk)
    isSwept = configuration.isSwept
  }

  /// Gives its file the digest for a name; what another spool holds is copied. A file has no generation.
  public func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError) {
    if let file = staged as? StagedFile, file.isIn(folder) {
      return try await file.publish(as: name.digest)
    }
    let copy = spool.next()
    try await disk.perform { () throws(StoreError) in try copy.write(staged.bytes()) }
    try await copy.publish(as: name.digest)
  }

  /// The image's file, open for reading. Its bytes are compared with their digest at first, once for all who ask, as by
  /// ``verify(_:bytes:)``.
  public func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    // A file that is replaced or touched between the two looks is looked at again.
    for _ in 0..<4 {
      let opened = try await disk.perform { [folder] () throws(StoreError) in
        try folder.open(digest)
      }
      guard let opened else { return nil }
      let file = OpenedFile(opened.descriptor, count: opened.count)
      if opened.isVerified { return .file(file) }
      guard try await verify(digest, nil) else { return nil }
    }
    throw .unavailable(detail: "an image's file changes all the time")
  }

  /// Reads the bytes and compares them with their digest, once as long as the file stays as it is; from then on a look
  /// at the file is enough.
  public func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool {
    try await verify(digest, bytes)
  }

  private func verify(_ digest: ImageDigest, _ bytes: Int?) async throws(StoreError) -> Bool {
    try await verifications.share(digest, bytes) { [disk, folder] () async throws(StoreError) in
      try await disk.perform { () throws(StoreError) in try folder.verify(digest, bytes: bytes) }
    }
  }

  /// Removes the file. Not synced: what comes back with the power is swept at the next start.
  public func remove(_ name: ImageName) async throws(StoreError) {
    try await disk.perform { [folder] () throws(StoreError) in try folder.remove(name.digest) }
  }

  /// Whether fewer than 24 MiB are free, or 1/8 of a small disk.
  public func isLow() async -> Bool {
    await disk.run { [space] in space.free.map { $0 < space.lowWater } ?? false }
  }

  /// Whether half as much again is free, and the file system gives half of it: where there is a quota, free space says little.
  public func hasRoom() async -> Bool {
    await disk.run { [space, folder, spool] in
      if let free = space.free, free < space.lowWater * 3 / 2 { return false }
      return folder.hasRoom(max(1, space.lowWater), asking: spool.run + "room")
    }
  }

  /// Reads the folders' names only. Files whose names are no digests are left alone: they aren't ours.
  public func sweep(
    _ remove: @Sendable ([ImageName]) async -> Int
  ) async throws(StoreError) -> Int {
    guard isSwept else { return 0 }
    var removed = 0
    var found: [ImageName] = []
    for name in ImageFolder.fanOut where !Task.isCancelled {
      let walk = try await disk.perform { [folder] () throws(StoreError) in
        try folder.walk(published: name)
      }
      guard let walk else { continue }
      while !Task.isCancelled {
        let files = await disk.run { walk.next(256) }
        if files.isEmpty { break }
        found += files.compactMap {
          ImageFolder.digest(folder: name, name: $0).map { ImageName($0) }
        }
        guard found.count >= 256 else { continue }
        removed += await remove(found)
        found = []
      }
    }
    if !found.isEmpty, !Task.isCancelled { removed += await remove(found) }
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
