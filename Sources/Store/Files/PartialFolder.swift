internal import Foundation
internal import Glibc
internal import Jobs
internal import Synchronization

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
