internal import Executors
internal import Foundation
internal import Glibc
package import Jobs

// Images: stores images in a folder.
//
// Input: bytes as they arrive (`FileSpool`), complete images and their digests. Output: stored images, by digest. Small images
// are in the job store's database (`TieredImageStore`). `StorageHome`, `FolderLock` and `DiskReserve` protect the folder, which
// the module SQLite also uses.

/// Stores each image in a file named by its digest, for one process.
///
/// An image is written to a temporary file in the same folder, synced and renamed, so that a named
/// file is always complete. Disk operations run on the store's own threads.
package final class FileImageStore: ImageStore {
  /// The settings of the store.
  package struct Configuration: Sendable {
    /// The folder; created if missing. No other process may write into it.
    package var path: String
    /// The number of threads for disk operations, and so of images that are synced at the same
    /// time.
    package var threads = 4
    /// The maximum size in bytes of all partial transfers; 0 keeps none.
    package var maxPartialBytes = 500_000_000
    /// Whether stored images survive a crash of the machine. False if the folder is deleted
    /// together with the process.
    package var isDurable = true
    /// Whether an earlier run may have left images. False for a folder made for one process.
    package var isSwept = true
    /// The number of bytes that a transfer of less than half a second may store before its record
    /// is written.
    var maxUnrecordedBytes = 1 << 20
    /// The file that identifies the current boot of the system.
    var bootIDPath = "/proc/sys/kernel/random/boot_id"

    /// Creates a configuration with default settings.
    package init(path: String) { self.path = path }
  }

  private let space: DiskSpace
  let folder: ImageFolder
  let disk: ThreadPool
  /// Uses the same folder as the images.
  package let spool: FileSpool
  private let verifications = Verifications()
  private let isSwept: Bool

  /// Opens the folder and finds the partial transfers of earlier runs. Blocks for some
  /// milliseconds.
  ///
  /// - Throws: `.unavailable` if the folder is unusable or another process uses it; `.full` if the
  ///   disk is full.
  package init(_ configuration: Configuration) throws(StoreError) {
    folder = try ImageFolder(configuration.path, isDurable: configuration.isDurable)
    space = DiskSpace(at: configuration.path)
    let partials = PartialFolder(
      folder, maxBytes: configuration.maxPartialBytes,
      maxUnrecordedBytes: configuration.maxUnrecordedBytes, bootIDPath: configuration.bootIDPath)
    try partials.loadPartials()
    disk = ThreadPool(name: "store-images", threads: max(1, configuration.threads))
    spool = FileSpool(partials, disk: disk)
    isSwept = configuration.isSwept
  }

  /// Renames the spooled file to its digest. Bytes from another spool are copied. The generation is
  /// ignored.
  package func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError) {
    if let file = staged as? StagedFile, file.isIn(folder) {
      return try await file.publish(as: name.digest)
    }
    let copy = spool.next()
    try await disk.perform { () throws(StoreError) in try copy.write(staged.bytes()) }
    try await copy.publish(as: name.digest)
  }

  /// Opens the image's file for reading. The first time, its bytes are compared with their digest,
  /// once for all concurrent callers.
  package func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    // Repeat if the file was replaced or touched between opening and verifying.
    for _ in 0..<4 {
      let opened = try await disk.perform { [folder] () throws(StoreError) in
        try folder.open(digest)
      }
      guard let opened else { return nil }
      let file = OpenedFile(opened.descriptor, count: opened.count)
      if opened.isVerified { return .file(file) }
      guard try await verify(digest, nil) else { return nil }
    }
    throw .unavailable(detail: "the file of the image keeps changing")
  }

  /// Compares the bytes with their digest. While the file stays unchanged, later calls only check
  /// its attributes.
  package func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool {
    try await verify(digest, bytes)
  }

  private func verify(_ digest: ImageDigest, _ bytes: Int?) async throws(StoreError) -> Bool {
    try await verifications.share(digest, bytes) { [disk, folder] () async throws(StoreError) in
      try await disk.perform { () throws(StoreError) in try folder.verify(digest, bytes: bytes) }
    }
  }

  /// Removes the file without syncing the folder. If a power failure restores the file, the sweep
  /// at the next start removes it.
  package func remove(_ name: ImageName) async throws(StoreError) {
    try await disk.perform { [folder] () throws(StoreError) in try folder.remove(name.digest) }
  }

  /// Whether fewer than 24 MiB are free, or less than 1/8 of a small disk.
  package func isLow() async -> Bool {
    await disk.run { [space] in space.free.map { $0 < space.lowWater } ?? false }
  }

  /// Whether 1.5 times the threshold of `isLow` is free. Also allocates a file, because a quota
  /// does not show in the free space.
  package func hasRoom() async -> Bool {
    await disk.run { [space, folder, spool] in
      if let free = space.free, free < space.lowWater * 3 / 2 { return false }
      return folder.canAllocate(max(1, space.lowWater), temporaryName: spool.run + "room")
    }
  }

  /// Reads only the names in the folders. Ignores files whose names are not digests.
  package func sweep(
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
  /// Runs `body` on one of the threads and rethrows its error.
  func perform<Value: Sendable>(
    _ body: @escaping @Sendable () throws(StoreError) -> Value
  ) async throws(StoreError) -> Value {
    try await run { () -> Result<Value, StoreError> in
      do throws(StoreError) { return .success(try body()) } catch { return .failure(error) }
    }.get()
  }
}
