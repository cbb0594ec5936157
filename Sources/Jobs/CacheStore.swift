public import Caching

/// Keeps what the cache knows of stored responses, and of variants; their bytes are images of the image store.
///
/// An entry, of either kind, refers to its image as a finished job does: the image stays while any of both does, and
/// when it has to give way to newer ones (``JobStore/reserve(_:bytes:as:limit:)``) the entry goes with it.
public protocol CacheStore: Sendable {
  /// What is stored under each of the keys, in their order.
  func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]]

  /// Notes when entries were last used. It may be lost in a crash.
  func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError)

  /// Forgets entries.
  func drop(_ ids: [CacheEntry.ID]) async throws(StoreError)

  /// Forgets everything under these keys.
  /// - Returns: how many entries there were.
  func drop(keys: [Fingerprint]) async throws(StoreError) -> Int

  /// Forgets up to `count` entries of a resource (``CacheEntry/resource``), under whatever key.
  /// - Returns: the image of each; none when none is left.
  func drop(resource: Fingerprint, count: Int) async throws(StoreError) -> [ImageDigest]

  /// Forgets everything.
  /// - Returns: how many entries there were.
  func clear() async throws(StoreError) -> Int

  /// The variant of that name.
  func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant?

  /// Keeps a variant in the place of the one of the same id, and ends a reservation: both in one step. The least
  /// recently used entries, responses and variants alike, give way until all fit into `limit`; one that is larger, or
  /// whose image is not kept, is not stored.
  func keep(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse
  ) async throws(StoreError)

  /// How many entries there are, and their images' bytes, equal images counted once.
  func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int)
}

extension CacheStore {
  /// Forgets everything under a key.
  /// - Returns: how many entries there were.
  public func drop(key: Fingerprint) async throws(StoreError) -> Int { try await drop(keys: [key]) }

  /// Keeps a variant where no uses are known but those noted.
  public func keep(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID
  ) async throws(StoreError) {
    try await keep(variant, within: limit, releasing: holder) { _ in nil }
  }
}

/// A stored response whose body was decoded whole.
public struct CacheEntry: Sendable, Equatable, Codable, Identifiable {
  /// What tells it from the others.
  public struct ID: Sendable, Hashable, Codable {
    /// ``Job/cacheKey``, or ``Job/sharedCacheKey``.
    public var key: Fingerprint
    /// The request fields that chose it among the key's responses (RFC 9111 section 4.1).
    public var selector: Fingerprint

    /// An entry's name.
    public init(key: Fingerprint, selector: Fingerprint) {
      self.key = key
      self.selector = selector
    }
  }

  /// Entries of one key at the most, as each look-up reads all of them: where a response brings more, the oldest go.
  package static let maxOfKey = 32

  /// Tells when an entry was last used, as far as that was not noted yet (``CacheStore/touch(_:)``).
  public typealias LastUse = @Sendable (ID) -> Timestamp?

  /// What tells it from the others.
  public var id: ID
  private var ownResource: Fingerprint?
  /// Its header section and when it came.
  public var response: StoredResponse
  /// How it was come by.
  public var path: StoredPath
  /// Its body, as a job that it answers will have it.
  public var image: StoredImage
  /// Whose credentials brought it (``Job/credentials``), where it may be shared on condition that the origin is asked once it
  /// is stale (RFC 9111 section 3.5, without `public`).
  public var credentials: Fingerprint?

  /// The key of the URL that was asked for, by which the entries of all its partitions are dropped.
  public var resource: Fingerprint { ownResource ?? id.key }

  /// An entry.
  /// - Parameter resource: nil: the key.
  public init(
    id: ID, resource: Fingerprint? = nil, response: StoredResponse, path: StoredPath = .direct,
    image: StoredImage
  ) {
    self.id = id
    ownResource = resource == id.key ? nil : resource
    self.response = response
    self.path = path
    self.image = image
  }
}

/// Where the cache may have an image that a job brought, and what was made of it.
public struct CachedImage: Sendable, Hashable {
  /// The image.
  public let digest: ImageDigest
  /// Responses with it are among those under these keys; what others brought is under other ones.
  public let keys: Set<Fingerprint>

  /// An image.
  public init(_ digest: ImageDigest, under keys: Set<Fingerprint>) {
    (self.digest, self.keys) = (digest, keys)
  }

  /// All that is under this key was made of it.
  package var variants: Fingerprint { Rendition.key(of: digest) }
}

/// A variant that was rendered and kept.
public struct StoredVariant: Sendable, Equatable, Identifiable {
  /// ``Rendition/id``: the key is one of the image that it was made of.
  public var id: CacheEntry.ID
  /// What it is, for people.
  public var name: String
  /// The name of its bytes in the image store.
  public var digest: ImageDigest
  /// How many bytes it has.
  public var bytes: Int

  /// A variant.
  public init(id: CacheEntry.ID, name: String, digest: ImageDigest, bytes: Int) {
    self.id = id
    self.name = name
    self.digest = digest
    self.bytes = bytes
  }
}
