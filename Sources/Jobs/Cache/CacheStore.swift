package import Caching

/// Stores the metadata of cached responses and variants. Their bytes are images in the image store.
///
/// A cache entry refers to its image like a finished job does. The image stays while an entry or a job refers
/// to it. When the image is evicted (``ImageReferences/reserve(_:bytes:as:limit:)``), its entries are deleted with
/// it.
package protocol CacheStore: Sendable {
  /// Returns the entries under each of the keys, in the order of the keys.
  func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]]

  /// Records when entries were last used. A crash may lose this.
  func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError)

  /// Deletes entries.
  func delete(_ ids: [CacheEntry.ID]) async throws(StoreError)

  /// Deletes all entries under these keys.
  /// - Returns: The number of deleted entries.
  func delete(keys: [Fingerprint]) async throws(StoreError) -> Int

  /// Deletes up to `count` entries of a resource (``CacheEntry/resource``), under any key.
  /// - Returns: The image of each deleted entry; empty if no entry is left.
  func delete(resource: Fingerprint, count: Int) async throws(StoreError) -> [ImageDigest]

  /// Deletes all entries.
  /// - Returns: The number of deleted entries.
  func clear() async throws(StoreError) -> Int

  /// Returns the variant with this ID.
  func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant?

  /// Saves a variant, which replaces one with the same ID, and ends a reservation, in one transaction. Evicts
  /// the least recently used entries (responses and variants) until all entries fit into `limit` bytes. Does
  /// not save a variant that is larger than `limit` or whose image is not kept.
  func save(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse
  ) async throws(StoreError)

  /// Returns the number of entries and the total bytes of their images. Equal images are counted once.
  func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int)
}

extension CacheStore {
  /// Deletes all entries under a key.
  /// - Returns: The number of deleted entries.
  package func delete(key: Fingerprint) async throws(StoreError) -> Int {
    try await delete(keys: [key])
  }

  /// Saves a variant. The store already knows all uses of entries.
  package func save(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID
  ) async throws(StoreError) {
    try await save(variant, within: limit, releasing: holder) { _ in nil }
  }
}

/// A stored response whose body was decoded completely.
package struct CacheEntry: Sendable, Equatable, Codable, Identifiable {
  /// Identifies an entry.
  package struct ID: Sendable, Hashable {
    /// ``Job/cacheKey``, or ``Job/sharedCacheKey``.
    package var key: Fingerprint
    /// Identifies the request fields that select this response among those of the key (RFC 9111 section 4.1).
    package var selector: Fingerprint

    package init(key: Fingerprint, selector: Fingerprint) {
      self.key = key
      self.selector = selector
    }
  }

  /// The maximum number of entries under one key, because each lookup reads all of them. The oldest are
  /// deleted.
  package static let maxOfKey = 32

  /// Returns when an entry was last used, if the store does not know it yet (``CacheStore/touch(_:)``).
  package typealias LastUse = @Sendable (ID) -> Timestamp?

  /// Not part of the entry's JSON: the store keeps it in columns.
  package var id = ID(key: .none, selector: .none)
  private var ownResource: Fingerprint?
  /// The header section and the time of arrival.
  package var response: StoredResponse
  /// How the response was reached.
  package var path: StoredPath
  /// The body, in the form that a job gets it.
  package var image: StoredImage
  /// The credentials of the request that fetched the response (``Job/credentials``). Set if the response may
  /// be shared only after the origin confirmed it once it is stale (RFC 9111 section 3.5, without `public`).
  package var credentials: Fingerprint?

  private enum CodingKeys: String, CodingKey {
    case ownResource, response, path, image, credentials
  }

  /// The key of the requested URL. All entries of a URL can be deleted by it, whichever partition they are
  /// in.
  package var resource: Fingerprint { ownResource ?? id.key }

  /// - Parameter resource: Nil means the same as the key.
  package init(
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

/// Where the cache may keep a job's image and the variants made from it.
package struct CachedImage: Sendable, Hashable {
  package let digest: ImageDigest
  /// The keys of responses with this image. Entries that other clients' requests stored may have other keys.
  package let keys: Set<Fingerprint>

  package init(_ digest: ImageDigest, under keys: Set<Fingerprint>) {
    (self.digest, self.keys) = (digest, keys)
  }

  /// The key of all variants made from the image.
  package var variants: Fingerprint { Rendition.key(of: digest) }
}

/// A variant that was rendered and stored.
package struct StoredVariant: Sendable, Equatable, Identifiable {
  /// ``Rendition/id``. The key belongs to the image that the variant was made from.
  package var id: CacheEntry.ID
  /// The options of the variant, for people.
  package var name: String
  /// The name of the bytes in the image store.
  package var digest: ImageDigest
  package var bytes: Int

  package init(id: CacheEntry.ID, name: String, digest: ImageDigest, bytes: Int) {
    self.id = id
    self.name = name
    self.digest = digest
    self.bytes = bytes
  }
}

/// The size of the cache, and its outcomes since the service started.
package struct CacheCounts: Sendable, Equatable {
  /// Stored responses and variants.
  package var entries = 0
  /// Bytes of their images on disk. Equal images are counted once.
  package var bytes = 0
  /// Bytes of images held in memory.
  package var memoryBytes = 0
  /// Jobs answered with a stored response that was fresh, or with a stale one that the job's cache mode or
  /// the origin permits.
  package var hits = 0
  /// Jobs answered with a stored response that the origin confirmed.
  package var revalidations = 0
  /// Jobs for which the cache had no usable response.
  package var misses = 0

  package init() {}
}
