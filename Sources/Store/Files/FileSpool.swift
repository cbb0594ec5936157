internal import Executors
internal import Glibc
package import Jobs
internal import Synchronization

/// Spools images into files next to the stored ones, so that an image is stored by renaming its
/// file.
package final class FileSpool: ImageSpool {
  private let partials: PartialFolder
  private let disk: ThreadPool
  private let count = Atomic<UInt64>(0)
  /// A prefix that distinguishes this run's unfinished files from those of earlier runs.
  let run = String(UInt64.random(in: 0 ... .max), radix: 16) + "-"

  init(_ partials: PartialFolder, disk: ThreadPool) {
    (self.partials, self.disk) = (partials, disk)
  }

  /// Does not use the disk: the file is created by the first write.
  package func stage() async throws(StoreError) -> any StagedImage { next() }

  func next() -> StagedFile {
    let number = count.add(1, ordering: .relaxed).newValue
    return StagedFile(name: run + String(number, radix: 16), in: partials, disk: disk)
  }

  /// Removes unfinished files of earlier runs, except partial transfers that were resumed.
  package func removeUnfinished() async throws(StoreError) -> Int {
    try await disk.perform { [partials, run] () throws(StoreError) in
      try partials.folder.clearIncoming(exceptRun: run)
    }
  }

  /// Reads the stored bytes once, to verify them and to continue their hash.
  package func takePartial(_ key: Fingerprint) async throws(StoreError) -> PartialTransfer? {
    guard partials.isOpen, partials.contains(key) else { return nil }
    return try await disk.perform { [partials, disk] () throws(StoreError) in
      guard let opened = try partials.open(key) else { return nil }
      let staged = StagedFile(continuing: opened, in: partials, disk: disk)
      return PartialTransfer(
        response: opened.record.response, count: opened.hash.count, bytes: try staged.bytes(),
        staged: staged)
    }
  }

  package func deletePartial(_ key: Fingerprint) async throws(StoreError) {
    await disk.run { [partials] in partials.delete(key) }
  }

  /// Writes the bytes on one of the store's threads.
  package func unnamedFile(_ bytes: [UInt8]) async throws(StoreError) -> StoredBytes {
    let name = next().name
    return try await disk.perform { [partials] () throws(StoreError) in
      .file(try partials.folder.unnamedFile(bytes, temporaryName: name))
    }
  }

  /// The size in bytes of the partial transfers, without those that are being resumed.
  package var partialBytes: Int { partials.bytes }
}
