internal import Foundation
internal import Glibc
internal import Jobs
internal import Synchronization

/// The unfinished transfers in an image folder: those being written and those set aside.
///
/// A transfer's bytes are written once, in `incoming/`, and stay in that file: it is renamed to be set aside and to be
/// continued. Its record is in `partials/` all the time, so that whenever the service ends, a record tells where to
/// look for bytes in two places, and bytes without one are nobody's.
///
/// Every method blocks, but ``bytes`` and ``holds(_:)``.
final class PartialFolder: Sendable {
  let folder: ImageFolder
  /// The present run of the system; nil when it can't be told.
  let boot: String?
  /// Whether anything may be kept.
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

  /// The bytes of all that is kept.
  var bytes: Int { kept.withLock { $0.bytes } }

  /// Keeps what an earlier run left, and removes whatever else is there.
  func adopt() throws(StoreError) {
    for left in try folder.leftPartials() {
      if folder.setAside(left.name) {
        keep(PartialIndex.Entry(name: left.name, bytes: left.bytes), for: left.key)
      } else {
        folder.dropPartial(left.name)
      }
    }
  }

  /// Keeps a file that was set aside; others may have to go.
  func keep(_ entry: PartialIndex.Entry, for key: Fingerprint) {
    let gone = kept.withLock { $0.keep(entry, for: key) }
    for name in gone { folder.dropPartial(name) }
  }

  func drop(_ key: Fingerprint) {
    guard let entry = kept.withLock({ $0.take(key) }) else { return }
    folder.dropPartial(entry.name)
  }

  /// Whether something is kept under a key; asks no disk.
  func holds(_ key: Fingerprint) -> Bool { kept.withLock { $0.holds(key) } }

  /// An unfinished transfer, open to be continued, its trusted bytes hashed.
  struct Opened: Sendable {
    var name: String
    var descriptor: Int32
    var record: PartialRecord
    var hash: PrefixHash
  }

  /// Hands over what is kept under a key; nil when there is nothing, or nothing to be trusted.
  func take(_ key: Fingerprint) throws(StoreError) -> Opened? {
    guard let entry = kept.withLock({ $0.take(key) }) else { return nil }
    do throws(StoreError) {
      if let opened = try open(entry.name, for: key) { return opened }
    } catch {
      folder.dropPartial(entry.name)
      throw error
    }
    folder.dropPartial(entry.name)
    return nil
  }

  private func open(_ name: String, for key: Fingerprint) throws(StoreError) -> Opened? {
    guard let record = folder.partialRecord(of: name), record.key == key,
      let (descriptor, size) = try folder.openPartial(name)
    else { return nil }
    guard let hash = trustedBytes(descriptor, size, record),
      ftruncate(descriptor, off_t(hash.count)) == 0,
      lseek(descriptor, off_t(hash.count), SEEK_SET) == off_t(hash.count),
      folder.takeUp(name)
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
