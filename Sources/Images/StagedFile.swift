internal import Digests
internal import Executors
internal import Foundation
internal import Glibc
internal import Jobs

/// An image being written to a file. Small images stay in memory until they are stored, so that an
/// abandoned one never uses the disk.
final class StagedFile: StagedImage, @unchecked Sendable {  // used by one task at a time
  /// The size in bytes of the buffer that merges small writes.
  private static let bufferSize = 64 << 10
  /// How long the bytes of an identified transfer may stay in the buffer, and how long few bytes
  /// may stay without a record. A crash of the process loses at most this much. Shorter transfers
  /// need no record, because writing its file would cost more than it saves.
  private static let flushInterval = Duration.milliseconds(500)

  /// The request and the response that the bytes belong to.
  private struct Identity: Equatable {
    var key: Fingerprint
    var response: PartialResponse
  }

  let name: String
  private let partials: PartialFolder
  private let disk: ThreadPool
  private var hash = PrefixHash()
  private var buffer: [UInt8] = []
  private let began = ContinuousClock.now
  private var lastFlush = ContinuousClock.now
  /// The file's descriptor, once the file was created.
  private var descriptor: Int32?
  private var digest: ImageDigest?
  /// The error of a failed write. Such an image can't be stored.
  private var fault: StoreError?
  private var identity: Identity?
  /// The identity in the record on the disk.
  private var recorded: Identity?
  private var hasRecord = false
  /// The first bytes, once they were synced.
  private var synced: PartialRecord.Prefix?

  private var folder: ImageFolder { partials.folder }

  init(name: String, in partials: PartialFolder, disk: ThreadPool) {
    self.name = name
    self.partials = partials
    self.disk = disk
  }

  /// Resumes a partial transfer; new bytes are appended.
  init(continuing opened: PartialFolder.Opened, in partials: PartialFolder, disk: ThreadPool) {
    name = opened.name
    self.partials = partials
    self.disk = disk
    hash = opened.hash
    descriptor = opened.descriptor
    identity = Identity(key: opened.record.key, response: opened.record.response)
    hasRecord = true
    synced = opened.record.whole
    // Otherwise new bytes would be attributed to an earlier boot.
    if opened.record.boot == partials.boot { recorded = identity }
  }

  deinit {
    guard descriptor != nil || hasRecord else { return }
    // Deleting a large file takes long, so it is done on another thread.
    Task(executorPreference: disk) { [name, folder, hasRecord, descriptor] in
      folder.discard(name)
      if hasRecord { folder.deleteRecord(of: name) }
      if let descriptor { close(descriptor) }
    }
  }

  func write(_ bytes: [UInt8]) throws(StoreError) {
    precondition(digest == nil, "write after finish")
    bytes.withUnsafeBytes { hash.update($0) }
    if buffer.count + bytes.count <= Self.bufferSize {
      buffer.append(contentsOf: bytes)
      if isOverdue { try flush() }
      return
    }
    try flush()
    if bytes.count < Self.bufferSize {
      buffer.append(contentsOf: bytes)
    } else {
      try writeToFile(bytes)
    }
  }

  func finish() -> ImageDigest {
    if let digest { return digest }
    let digest = hash.digest
    self.digest = digest
    return digest
  }

  var content: [UInt8]? { descriptor == nil && fault == nil ? buffer : nil }

  /// Returns the bytes with a new descriptor, because a reader may outlive this object.
  func bytes() throws(StoreError) -> StoredBytes {
    if let content { return .memory(content) }
    if let fault { throw fault }
    try flush()
    let reading = fcntl(try file(), F_DUPFD_CLOEXEC, 0)
    guard reading >= 0 else { throw StoreError(errno: errno, "opening spooled bytes") }
    return .file(OpenedFile(reading, count: hash.count))
  }

  /// Copies the bytes of another spooled image.
  func write(_ bytes: StoredBytes) throws(StoreError) {
    var offset = 0
    while offset < bytes.count {
      let piece = bytes.read(at: offset, count: 1 << 20)
      guard !piece.isEmpty else { throw .unavailable(detail: "spooled bytes can't be read") }
      try write(piece)
      offset += piece.count
    }
  }

  /// Returns whether the file can be stored in that folder by renaming it.
  func isIn(_ folder: ImageFolder) -> Bool { self.folder === folder }

  func publish(as digest: ImageDigest) async throws(StoreError) {
    try await disk.perform { [self] () throws(StoreError) in try publishFile(as: digest) }
  }

  private func publishFile(as digest: ImageDigest) throws(StoreError) {
    if let fault { throw fault }
    if try folder.isStored(digest, bytes: hash.count) { return discard() }
    // A partial transfer is no longer needed.
    identity = nil
    try flush()
    let descriptor = try file()
    try folder.publish(name, descriptor, as: digest)
    close(descriptor)
    self.descriptor = nil
    deleteRecord()
  }

  private func discard() {
    buffer = []
    if let descriptor {
      folder.discard(name)
      close(descriptor)
      self.descriptor = nil
    }
    deleteRecord()
  }

  private func flush() throws(StoreError) {
    guard !buffer.isEmpty else { return }
    try writeToFile(buffer)
    buffer = []
  }

  private func file() throws(StoreError) -> Int32 {
    if let descriptor { return descriptor }
    let made = try folder.create(name)
    descriptor = made
    return made
  }

  private func writeToFile(_ bytes: [UInt8]) throws(StoreError) {
    let code = ImageFolder.write(bytes, to: try file())
    guard code == 0 else {
      let fault = StoreError(errno: code, "writing an image")
      self.fault = fault
      throw fault
    }
    guard identity != nil else { return }
    lastFlush = .now
    writeRecordIfDue()
  }
}

/// Partial transfers that survive a broken connection or a crash.
extension StagedFile {
  func identify(_ key: Fingerprint, _ response: PartialResponse) {
    guard partials.isOpen else { return }
    identity = Identity(key: key, response: response)
  }

  func keepPartial() async throws(StoreError) {
    try await disk.perform { [self] () throws(StoreError) in
      do throws(StoreError) {
        try storePartial()
      } catch {
        discard()
        throw error
      }
    }
  }

  private func storePartial() throws(StoreError) {
    guard let identity, hash.count > 0 else { return discard() }
    if let fault { throw fault }
    try flush()
    let descriptor = try file()
    guard fsync(descriptor) == 0 else { throw StoreError(errno: errno, "syncing kept bytes") }
    synced = PartialRecord.Prefix(count: hash.count, digest: finish())
    try save(identity, synced: true)
    guard folder.movePartialToStorage(name) else {
      throw StoreError(errno: errno, "setting bytes aside")
    }
    close(descriptor)
    self.descriptor = nil
    hasRecord = false
    partials.store(PartialIndex.Entry(name: name, bytes: hash.count), for: identity.key)
  }

  private var isOverdue: Bool {
    identity != nil && lastFlush.duration(to: .now) >= Self.flushInterval
  }

  /// Writes the record of the transfer. If this fails, only the ability to resume after a crash is
  /// lost.
  private func writeRecordIfDue() {
    guard let identity, identity != recorded,
      hash.count >= partials.maxUnrecordedBytes
        || began.duration(to: .now) >= Self.flushInterval
    else { return }
    recorded = identity
    try? save(identity, synced: false)
  }

  private func save(_ identity: Identity, synced isSynced: Bool) throws(StoreError) {
    hasRecord = true
    let record = PartialRecord(
      key: identity.key, response: identity.response, boot: partials.boot, whole: synced)
    try folder.save(record, of: name, synced: isSynced)
  }

  private func deleteRecord() {
    guard hasRecord else { return }
    folder.deleteRecord(of: name)
    hasRecord = false
  }
}

/// The SHA-256 of a file's first bytes. Further bytes can be added.
struct PrefixHash: Sendable {
  private var hash = SHA256()
  /// The number of hashed bytes.
  private(set) var count = 0

  /// The digest of the bytes so far.
  var digest: ImageDigest {
    guard let digest = ImageDigest(bytes: hash.finalize()) else {
      preconditionFailure("a SHA-256 has 32 bytes")
    }
    return digest
  }

  mutating func update(_ bytes: UnsafeRawBufferPointer) {
    hash.update(data: bytes)
    count += bytes.count
  }

  /// Adds an open file's bytes from ``count`` up to `end`. Blocks.
  /// - Returns: whether the file has `end` bytes.
  /// - Throws: an error if the file can't be read; this says nothing about its content.
  mutating func read(_ descriptor: Int32, upTo end: Int) throws(StoreError) -> Bool {
    let size = min(256 << 10, max(1, end - count))
    let failure = withUnsafeTemporaryAllocation(byteCount: size, alignment: 16) { buffer in
      while count < end {
        let got = pread(descriptor, buffer.baseAddress, min(size, end - count), off_t(count))
        if got < 0 && errno == EINTR { continue }
        guard got > 0 else { return got < 0 ? errno : 0 }
        update(UnsafeRawBufferPointer(rebasing: buffer[..<got]))
      }
      return 0
    }
    guard failure == 0 else { throw StoreError(errno: failure, "reading an image") }
    return count >= end
  }
}
