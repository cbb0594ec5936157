internal import Digests
internal import Glibc
internal import Jobs

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
