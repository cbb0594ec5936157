internal import Executors
internal import Glibc
public import Jobs
internal import Synchronization

/// Spools images into files beside those that are kept, so that keeping one is giving it a name.
public final class FileSpool: ImageSpool {
  private let partials: PartialFolder
  private let disk: ThreadPool
  private let count = Atomic<UInt64>(0)
  /// Names of this run's unfinished files differ from those that an earlier one left behind.
  let run = String(UInt64.random(in: 0 ... .max), radix: 16) + "-"

  init(_ partials: PartialFolder, disk: ThreadPool) {
    (self.partials, self.disk) = (partials, disk)
  }

  /// Needs no disk yet: the file is made once there are bytes to put into it.
  public func stage() async throws(StoreError) -> any StagedImage { next() }

  func next() -> StagedFile {
    let number = count.add(1, ordering: .relaxed).newValue
    return StagedFile(name: run + String(number, radix: 16), in: partials, disk: disk)
  }

  /// What this run stages, and what is continued of an earlier run's, is left alone.
  public func removeUnfinished() async throws(StoreError) -> Int {
    try await disk.perform { [partials, run] () throws(StoreError) in
      try partials.folder.clearIncoming(but: run)
    }
  }

  /// Reads the kept bytes once, to know them again and to hash on from there.
  public func take(_ key: Fingerprint) async throws(StoreError) -> KeptTransfer? {
    guard partials.isOpen, partials.holds(key) else { return nil }
    return try await disk.perform { [partials, disk] () throws(StoreError) in
      guard let opened = try partials.take(key) else { return nil }
      let staged = StagedFile(continuing: opened, in: partials, disk: disk)
      return KeptTransfer(
        response: opened.record.response, count: opened.hash.count, bytes: try staged.bytes(),
        staged: staged)
    }
  }

  /// Removes the files.
  public func drop(_ key: Fingerprint) async throws(StoreError) {
    await disk.run { [partials] in partials.drop(key) }
  }

  /// Written on a thread of the store's own.
  public func file(_ bytes: [UInt8]) async throws(StoreError) -> StoredBytes {
    let name = next().name
    return try await disk.perform { [partials] () throws(StoreError) in
      .file(try partials.folder.file(bytes, calledAtFirst: name))
    }
  }

  /// What is handed over isn't counted.
  public var keptBytes: Int { partials.bytes }
}
