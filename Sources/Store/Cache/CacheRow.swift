internal import Foundation
internal import Jobs

/// A cache entry to store: a response or a variant.
struct CacheRow: Sendable {
  let id: CacheEntry.ID
  /// ``CacheEntry/resource`` if it differs from the key.
  let resource: Fingerprint?
  let digest: ImageDigest
  let bytes: Int
  /// A response as JSON. For a variant only its name, for display: the other columns contain the
  /// rest.
  let record: Data
  /// Whether it is a response. Responses of one key are searched together; variants are not.
  let isResponse: Bool

  /// - Throws: an error if the entry can't be encoded.
  init(_ entry: CacheEntry) throws {
    (id, digest, bytes) = (entry.id, entry.image.digest, entry.image.bytes)
    resource = entry.resource == entry.id.key ? nil : entry.resource
    record = try CacheRecord.data(of: entry)
    isResponse = true
  }

  init(_ variant: StoredVariant) {
    (id, digest, bytes) = (variant.id, variant.digest, variant.bytes)
    resource = nil
    record = Data(variant.name.utf8)
    isResponse = false
  }
}
