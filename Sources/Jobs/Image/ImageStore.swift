/// Stores images. Equal bytes are stored once, under their digest or under each of their names. Every
/// implementation passes the tests in ImageStoreTests.
package protocol ImageStore: Sendable {
  /// Stores a spooled image durably. The digest in the name is the one that ``StagedImage/finish()``
  /// returned. Equal bytes that are already stored stay as they are; corrupt ones are replaced. Do not use
  /// `staged` afterwards: its file may have been moved.
  func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError)

  /// Returns the image's bytes; nil if there are none under this digest or if they are corrupt.
  func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes?

  /// Whether the bytes are stored, complete and not corrupt.
  func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool

  /// Deletes the bytes, if there are any.
  func remove(_ name: ImageName) async throws(StoreError)

  /// Whether the disk of the image store is almost full.
  func isLow() async -> Bool

  /// Whether there is space for some dozen more images.
  func hasRoom() async -> Bool

  /// Passes all images to `remove`, some hundred at a time, until the task is cancelled. Images that are
  /// stored meanwhile may be missed.
  /// - Parameter remove: Deletes the images without references and returns their number.
  /// - Returns: The number of deleted images.
  func sweep(_ remove: @Sendable ([ImageName]) async -> Int) async throws(StoreError) -> Int

  /// Deletes files that an earlier run left on this machine and that are not images.
  func deleteTemporaryFiles() async throws(StoreError)

  /// Deletes this machine's copy of an image that another instance removed from the store.
  func deleteCopy(of digest: ImageDigest) async
}

extension ImageStore {
  /// Unknown for this store.
  package func isLow() async -> Bool { false }

  /// This store has no copies.
  package func deleteCopy(of digest: ImageDigest) async {}

  /// This store has no other files.
  package func deleteTemporaryFiles() async throws(StoreError) {}
}

/// A job store that stores small images itself (``JobQueue/largestEmbedded``).
package protocol EmbeddedImages: Sendable {
  /// The largest image that the job store stores, in bytes.
  var largestEmbedded: Int { get }

  /// Returns the bytes of such an image, if stored. The caller has to verify them.
  func embeddedImage(_ digest: ImageDigest) async throws(StoreError) -> [UInt8]?
}

/// The bytes of a stored image. They stay readable as long as this value exists, even if the image is
/// deleted.
package enum StoredBytes: Sendable {
  /// Bytes in memory.
  case memory([UInt8])
  /// A range of an open file.
  case file(any StoredFile, Range<Int>)

  /// The limit, in bytes, for keeping an image or variant in memory while it is sent to a client. Larger ones
  /// stay in files, because clients may read slowly or never.
  package static let mostInMemory = 128 << 10

  /// All bytes of an open file.
  package static func file(_ file: any StoredFile) -> StoredBytes { .file(file, 0..<file.count) }

  /// The number of bytes.
  package var count: Int {
    switch self {
    case .memory(let bytes): bytes.count
    case .file(_, let range): range.count
    }
  }

  /// Reads a part. May block on the disk.
  /// - Returns: Fewer bytes than requested if the file became shorter or cannot be read.
  package func read(at offset: Int, count: Int) -> [UInt8] {
    switch self {
    case .memory(let bytes): Array(bytes.dropFirst(offset).prefix(count))
    case .file(let file, let range):
      file.read(
        at: range.lowerBound + offset, count: max(0, min(count, range.count - offset)))
    }
  }

  /// Returns a part of the bytes.
  /// - Parameter part: A range within `0..<count`.
  package func part(_ part: Range<Int>) -> StoredBytes {
    switch self {
    case .memory(let bytes): .memory(Array(bytes[part]))
    case .file(let file, let range):
      .file(file, range.lowerBound + part.lowerBound..<range.lowerBound + part.upperBound)
    }
  }
}

/// A file that is open for reading. It is closed when the last reference is released.
///
/// The adapter that opens files and the HTTP server agree on the concrete type, so that the kernel can send
/// the file.
package protocol StoredFile: AnyObject, Sendable {
  /// The size in bytes when the file was opened.
  var count: Int { get }

  /// Reads a part. May block on the disk.
  /// - Returns: Fewer bytes than requested if the file became shorter or cannot be read.
  func read(at offset: Int, count: Int) -> [UInt8]
}

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
