/// Stores images on this machine while they arrive, before they move to the image store.
///
/// The spool also keeps partial transfers, which survive a crash of the service. When space runs out, it
/// deletes the oldest partial transfers first. ``StagedImage/keepPartial()`` saves them.
package protocol ImageSpool: Sendable {
  /// Creates a file for an image whose digest is not known yet.
  func stage() async throws(StoreError) -> any StagedImage

  /// Deletes incomplete files of an earlier run. Called once, before the first ``stage()``.
  /// - Returns: The number of deleted files.
  func removeUnfinished() async throws(StoreError) -> Int

  /// Returns the partial transfer of a request and removes it from the spool, so that no other caller gets
  /// it. Deletes bytes that may be incomplete or corrupt, for example after a power cut.
  func takePartial(_ key: Fingerprint) async throws(StoreError) -> PartialTransfer?

  /// Deletes the partial transfer of a request.
  func deletePartial(_ key: Fingerprint) async throws(StoreError)

  /// The total bytes of all partial transfers.
  var partialBytes: Int { get }

  /// Writes bytes to a file without a name, which the system deletes when it is closed.
  func unnamedFile(_ bytes: [UInt8]) async throws(StoreError) -> StoredBytes
}

extension ImageSpool {
  /// Keeps the bytes in memory, for a spool without files.
  package func unnamedFile(_ bytes: [UInt8]) async throws(StoreError) -> StoredBytes {
    .memory(bytes)
  }
}

/// An image that is being written to the spool, by one task at a time. When it is released, its bytes are
/// deleted unless an image store has taken them over.
package protocol StagedImage: AnyObject, Sendable {
  /// Appends bytes. May compute and block on the disk; call it on a thread that allows this.
  func write(_ bytes: [UInt8]) throws(StoreError)

  /// Returns the digest of all bytes written.
  func finish() -> ImageDigest

  /// All bytes written, if they are few and still in memory.
  var content: [UInt8]? { get }

  /// Returns all bytes written, for a store to read. May block on the disk.
  func bytes() throws(StoreError) -> StoredBytes

  /// Records which response the bytes belong to. After a crash of the service, the next request with the same
  /// key can continue from the bytes written, except those of the last second.
  func identify(_ key: Fingerprint, _ response: PartialResponse)

  /// Keeps the bytes as the partial transfer for the key of ``identify(_:_:)``, and replaces an older one.
  /// Without a key or without bytes, nothing is kept. The image cannot be used after this call.
  func keepPartial() async throws(StoreError)
}

/// The properties of a response whose body is stored in part.
package struct PartialResponse: Sendable, Equatable, Codable {
  /// The URL that answered.
  package var url: SourceURL
  /// Whether redirects led to the URL.
  package var isRedirected: Bool
  /// The strong validator for `If-Range` (RFC 9110 section 13.1.5): an entity tag or an HTTP date, as
  /// received.
  package var validator: String
  /// The size of the complete representation in bytes, if the origin stated it.
  package var total: Int?

  package init(url: SourceURL, isRedirected: Bool = false, validator: String, total: Int?) {
    self.url = url
    self.isRedirected = isRedirected
    self.validator = validator
    self.total = total
  }
}

/// The first bytes of an image, from which a transfer can resume.
package struct PartialTransfer: Sendable {
  /// The response that the bytes belong to.
  package var response: PartialResponse
  /// The number of bytes; at least 1.
  package var count: Int
  /// The bytes, to be decoded.
  package var bytes: StoredBytes
  /// The spool file with these bytes. New bytes are appended to it.
  package var staged: any StagedImage

  package init(
    response: PartialResponse, count: Int, bytes: StoredBytes, staged: any StagedImage
  ) {
    self.response = response
    self.count = count
    self.bytes = bytes
    self.staged = staged
  }
}
