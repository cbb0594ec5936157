internal import Executors
internal import Foundation
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

/// The partial transfers in an image folder, both active and stored ones.
///
/// A transfer's bytes are written to one file in `incoming/`. The file is renamed into `partials/`
/// to store it, and back to resume it. Its record is always in `partials/`. After a crash, the
/// bytes of each record are therefore in one of the two folders, and bytes without a record can be
/// deleted.
///
/// Every method blocks, except ``bytes`` and ``contains(_:)``.
final class PartialFolder: Sendable {
  let folder: ImageFolder
  /// The id of the current boot; `nil` if unknown.
  let boot: String?
  /// Whether partial transfers are stored.
  let isOpen: Bool
  let maxUnrecordedBytes: Int
  private let kept: Mutex<PartialIndex>

  init(_ folder: ImageFolder, maxBytes: Int, maxUnrecordedBytes: Int, bootIDPath: String) {
    self.folder = folder
    self.maxUnrecordedBytes = maxUnrecordedBytes
    isOpen = maxBytes > 0
    kept = Mutex(PartialIndex(maxBytes: maxBytes))
    let text = try? String(contentsOfFile: bootIDPath, encoding: .utf8)
    boot = text.map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }.flatMap {
      $0.isEmpty ? nil : $0
    }
  }

  /// The size in bytes of all stored partial transfers.
  var bytes: Int { kept.withLock { $0.bytes } }

  /// Adds the partial transfers of earlier runs, and removes invalid files.
  func loadPartials() throws(StoreError) {
    for left in try folder.findPartials() {
      if folder.movePartialToStorage(left.name) {
        store(PartialIndex.Entry(name: left.name, bytes: left.bytes), for: left.key)
      } else {
        folder.deletePartial(left.name)
      }
    }
  }

  /// Adds a partial transfer that was moved to `partials/`. Older ones may be evicted.
  func store(_ entry: PartialIndex.Entry, for key: Fingerprint) {
    let gone = kept.withLock { $0.insert(entry, for: key) }
    for name in gone { folder.deletePartial(name) }
  }

  func delete(_ key: Fingerprint) {
    guard let entry = kept.withLock({ $0.remove(key) }) else { return }
    folder.deletePartial(entry.name)
  }

  /// Returns whether a partial transfer is stored under a key, without using the disk.
  func contains(_ key: Fingerprint) -> Bool { kept.withLock { $0.contains(key) } }

  /// A partial transfer opened for resuming; its trusted bytes are hashed.
  struct Opened: Sendable {
    var name: String
    var descriptor: Int32
    var record: PartialRecord
    var hash: PrefixHash
  }

  /// Removes and opens the partial transfer stored under a key; returns `nil` if there is none or
  /// it can't be trusted.
  func open(_ key: Fingerprint) throws(StoreError) -> Opened? {
    guard let entry = kept.withLock({ $0.remove(key) }) else { return nil }
    do throws(StoreError) {
      if let opened = try open(entry.name, for: key) { return opened }
    } catch {
      folder.deletePartial(entry.name)
      throw error
    }
    folder.deletePartial(entry.name)
    return nil
  }

  private func open(_ name: String, for key: Fingerprint) throws(StoreError) -> Opened? {
    guard let record = folder.partialRecord(of: name), record.key == key,
      let (descriptor, size) = try folder.openPartial(name)
    else { return nil }
    guard let hash = trustedBytes(descriptor, size, record),
      ftruncate(descriptor, off_t(hash.count)) == 0,
      lseek(descriptor, off_t(hash.count), SEEK_SET) == off_t(hash.count),
      folder.movePartialToIncoming(name)
    else {
      close(descriptor)
      return nil
    }
    return Opened(name: name, descriptor: descriptor, record: record, hash: hash)
  }

  private func trustedBytes(
    _ descriptor: Int32, _ size: Int, _ record: PartialRecord
  ) -> PrefixHash? {
    let count = record.trusted(of: size, boot: boot)
    guard count > 0, count <= record.response.total ?? .max else { return nil }
    var hash = PrefixHash()
    if let whole = record.whole {
      guard (try? hash.read(descriptor, upTo: whole.count)) == true, hash.digest == whole.digest
      else { return nil }
    }
    return (try? hash.read(descriptor, upTo: count)) == true ? hash : nil
  }
}

/// An index of the stored partial transfers, in order of insertion, with limits on their bytes and
/// number.
struct PartialIndex {
  /// One transfer: the name of its files, and its size in bytes.
  struct Entry: Equatable {
    var name: String
    var bytes: Int
  }

  private let maxCount: Int
  private var entries: LRUCache<Fingerprint, Entry>

  /// The size in bytes of all transfers.
  var bytes: Int { entries.cost }

  /// - Parameter maxCount: limits memory and inodes if many transfers are tiny.
  init(maxBytes: Int, maxCount: Int = 16_384) {
    self.maxCount = maxCount
    entries = LRUCache(capacity: maxBytes)
  }

  /// Adds a transfer and replaces the one under the same key.
  /// - Returns: the names of the transfers to delete: the replaced one, the oldest ones beyond the
  ///   limits, or the new one if it is too large.
  mutating func insert(_ entry: Entry, for key: Fingerprint) -> [String] {
    guard entry.bytes <= entries.capacity, maxCount > 0, entries.capacity > 0 else {
      return [entry.name]
    }
    var gone = entries.remove(key).map { [$0.name] } ?? []
    gone += entries.set(entry, for: key, cost: entry.bytes).map(\.value.name)
    while entries.count > maxCount, let oldest = entries.removeOldest() {
      gone.append(oldest.value.name)
    }
    return gone
  }

  /// Returns whether a transfer is stored under a key.
  func contains(_ key: Fingerprint) -> Bool { entries.peek(key) != nil }

  /// Removes and returns the transfer stored under a key.
  mutating func remove(_ key: Fingerprint) -> Entry? { entries.remove(key) }
}

/// The record of a partial transfer, stored as JSON next to its bytes, so that a later run can
/// resume it.
struct PartialRecord: Codable, Sendable {
  /// The request that the bytes belong to.
  var key: Fingerprint
  /// The response that the bytes are a part of.
  var response: PartialResponse
  /// The boot id when the bytes were written. Within the same boot, written bytes survive the end
  /// of the process even without a sync.
  var boot: String?
  /// The bytes synced before the transfer was stored; `nil` while it is active for the first time.
  var whole: Prefix?

  /// A number of first bytes and their digest.
  struct Prefix: Codable, Sendable {
    var count: Int
    var digest: ImageDigest
  }

  func encoded() -> [UInt8] {
    // Encoding can't fail: every member has a JSON form.
    guard let data = try? JSONEncoder().encode(self) else { return [] }
    return Array(data)
  }

  /// Returns `nil` if the text is not a complete record.
  init?(encoded bytes: [UInt8]) {
    guard let record = try? JSONDecoder().decode(Self.self, from: Data(bytes)),
      record.key.bytes.count == 32
    else { return nil }
    self = record
  }

  init(key: Fingerprint, response: PartialResponse, boot: String?, whole: Prefix? = nil) {
    self.key = key
    self.response = response
    self.boot = boot
    self.whole = whole
  }

  /// Returns how many of a file's bytes can be trusted, provided that its first bytes match
  /// ``whole``.
  ///
  /// - Parameter boot: the id of the current boot; `nil` if unknown.
  func trusted(of size: Int, boot: String?) -> Int {
    let isSameRun = boot != nil && boot == self.boot
    guard let whole else { return isSameRun ? size : 0 }
    guard size >= whole.count else { return 0 }
    return isSameRun ? size : whole.count
  }
}
