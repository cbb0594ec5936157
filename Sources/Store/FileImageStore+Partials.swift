internal import Executors
internal import Glibc
public import Jobs

extension FileImageStore: PartialStore {
  /// Reads the kept bytes once, to know them again and to hash on from there.
  public func take(_ key: Fingerprint) async throws(StoreError) -> KeptTransfer? {
    guard partials.isOpen, partials.holds(key) else { return nil }
    return try await disk.perform { [partials, disk] () throws(StoreError) in
      guard let opened = try partials.take(key) else { return nil }
      let staged = StagedFile(continuing: opened, in: partials, disk: disk)
      // A descriptor of its own, as who decodes the bytes may hold them longer than the stage lives.
      let reading = fcntl(opened.descriptor, F_DUPFD_CLOEXEC, 0)
      guard reading >= 0 else { throw StoreError(errno: errno, "opening kept bytes") }
      let bytes = StoredBytes(
        descriptor: reading, count: opened.hash.count,
        reader: { ImageFolder.read(reading, at: $0, count: $1) }, close: { close(reading) })
      return KeptTransfer(
        response: opened.record.response, count: opened.hash.count, bytes: bytes, staged: staged)
    }
  }

  /// Removes the files.
  public func drop(_ key: Fingerprint) async throws(StoreError) {
    await disk.run { [partials] in partials.drop(key) }
  }

  /// What is handed over isn't counted.
  public var keptBytes: Int { partials.bytes }
}
