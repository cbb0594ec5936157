/// Keeps the bytes of transfers that were broken off, also over a crash of the service, the least recently kept first
/// out. See ``StagedImage/setAside()`` for how they get here.
public protocol PartialStore: Sendable {
  /// Hands over what is kept for a request; from then on it is the caller's alone. Bytes whose origin is doubtful (a
  /// crash of the machine, a damaged file) are dropped.
  func take(_ key: Fingerprint) async throws(StoreError) -> KeptTransfer?

  /// Forgets what is kept for a request.
  func drop(_ key: Fingerprint) async throws(StoreError)

  /// The bytes kept.
  var keptBytes: Int { get }
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
