public import Caching

/// Keeps what the cache knows of stored responses, and of variants; their bytes are images of the image store.
///
/// An entry, of either kind, refers to its image as a finished job does: the image stays while any of both does, and
/// when it has to give way to newer ones (``JobStore/reserve(_:bytes:as:limit:)``) the entry goes with it.
public protocol CacheStore: Sendable {
  /// What is stored under each of the keys, in their order.
  func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]]

  /// Replaces what is known of an entry (RFC 9111 section 3.2); one that is gone meanwhile stays so.
  func replace(_ entry: CacheEntry) async throws(StoreError)

  /// Notes when entries were last used. It may be lost in a crash.
  func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError)

  /// Forgets entries.
  func drop(_ ids: [CacheEntry.ID]) async throws(StoreError)

  /// Forgets everything under a key.
  /// - Returns: how many entries there were.
  func drop(key: Fingerprint) async throws(StoreError) -> Int

  /// Forgets everything.
  /// - Returns: how many entries there were.
  func clear() async throws(StoreError) -> Int

  /// The variant of that name.
  func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant?

  /// Keeps a variant in the place of the one of the same id, and ends a reservation: both in one step. The least
  /// recently used entries, responses and variants alike, give way until all fit into `limit`; one that is larger, or
  /// whose image is not kept, is not stored.
  func keep(_ variant: StoredVariant, within limit: Int, releasing holder: JobID)
    async throws(StoreError)

  /// How many entries there are, and their images' bytes, equal images counted once an entry.
  func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int)
}

/// A stored response whose body was decoded whole.
public struct CacheEntry: Sendable, Equatable, Codable, Identifiable {
  /// What tells it from the others.
  public struct ID: Sendable, Hashable, Codable {
    /// The resource's key: ``Job/cacheKey``.
    public var key: Fingerprint
    /// The request fields that chose it among the key's responses (RFC 9111 section 4.1).
    public var selector: Fingerprint

    /// An entry's name.
    public init(key: Fingerprint, selector: Fingerprint) {
      self.key = key
      self.selector = selector
    }
  }

  /// What tells it from the others.
  public var id: ID
  /// Its header section and when it came.
  public var response: StoredResponse
  /// Its body, as a job that it answers will have it.
  public var image: StoredImage

  /// An entry.
  public init(id: ID, response: StoredResponse, image: StoredImage) {
    self.id = id
    self.response = response
    self.image = image
  }
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
