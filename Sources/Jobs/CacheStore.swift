public import Caching

/// Keeps what the cache knows of stored responses; their bytes are images of the image store.
///
/// An entry refers to its image as a finished job does: the image stays while any of both does, and when it has to give
/// way to newer ones (``JobStore/reserve(_:bytes:as:limit:)``) the entry goes with it.
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
