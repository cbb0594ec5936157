/// Where images are written while they come in, on this machine, wherever they are kept then.
///
/// It also keeps the bytes of transfers that were broken off, over a crash of the service too, the least recently kept
/// first out. See ``StagedImage/setAside()`` for how they get here.
public protocol ImageSpool: Sendable {
  /// Room for an image whose digest is not known yet.
  func stage() async throws(StoreError) -> any StagedImage

  /// Removes what a crash left half written: called once, before anything is staged.
  /// - Returns: how many there were.
  func removeUnfinished() async throws(StoreError) -> Int

  /// Hands over what is kept for a request; from then on it is the caller's alone. Bytes whose origin is doubtful (a
  /// crash of the machine, a damaged file) are dropped.
  func take(_ key: Fingerprint) async throws(StoreError) -> KeptTransfer?

  /// Forgets what is kept for a request.
  func drop(_ key: Fingerprint) async throws(StoreError)

  /// The bytes kept of broken-off transfers.
  var keptBytes: Int { get }

  /// Puts bytes into a file without a name, which is gone once it is closed.
  func file(_ bytes: [UInt8]) async throws(StoreError) -> StoredBytes
}

extension ImageSpool {
  /// Memory is all that it has.
  public func file(_ bytes: [UInt8]) async throws(StoreError) -> StoredBytes { .memory(bytes) }
}

/// An image being spooled: by one task, in order. Letting go of it leaves nothing behind but what a store has taken over.
public protocol StagedImage: AnyObject, Sendable {
  /// Adds bytes. May compute and wait for the disk: call it on a thread that may.
  func write(_ bytes: [UInt8]) throws(StoreError)

  /// The digest of all bytes written.
  func finish() -> ImageDigest

  /// All the bytes written, where they are few and still in memory.
  var content: [UInt8]? { get }

  /// All the bytes written, for a store to read. May wait for the disk.
  func bytes() throws(StoreError) -> StoredBytes

  /// Says which response the bytes are of: from now on a crash of the service leaves those that were written, but for
  /// the last second's, to be continued by the next request of that key.
  func identify(_ key: Fingerprint, _ response: PartialResponse)

  /// Leaves the bytes to the next request of the key that ``identify(_:_:)`` told, in the place of what is kept for it.
  /// Without a key, or a byte, nothing is left. The stage can't be used after this.
  func setAside() async throws(StoreError)
}

/// What is known of a response whose body is kept in part.
public struct PartialResponse: Sendable, Equatable, Codable {
  /// The URL that answered.
  public var url: SourceURL
  /// Whether redirects led there.
  public var isRedirected: Bool
  /// The strong validator for `If-Range` (RFC 9110 section 13.1.5): an entity tag or an HTTP date, as received.
  public var validator: String
  /// Bytes of the whole representation, if the origin said so.
  public var total: Int?

  /// A response's facts.
  public init(url: SourceURL, isRedirected: Bool = false, validator: String, total: Int?) {
    self.url = url
    self.isRedirected = isRedirected
    self.validator = validator
    self.total = total
  }
}

/// The first bytes of an image, ready to be continued.
public struct KeptTransfer: Sendable {
  /// The response that they belong to.
  public var response: PartialResponse
  /// How many there are; at least one.
  public var count: Int
  /// The bytes, to be decoded.
  public var bytes: StoredBytes
  /// The stage that holds them: what is written to it follows them.
  public var staged: any StagedImage

  /// Kept bytes.
  public init(
    response: PartialResponse, count: Int, bytes: StoredBytes, staged: any StagedImage
  ) {
    self.response = response
    self.count = count
    self.bytes = bytes
    self.staged = staged
  }
}
