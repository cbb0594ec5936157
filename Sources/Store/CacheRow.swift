internal import Foundation
internal import Jobs

/// What is to be stored as an entry, a response's or a variant's.
struct CacheRow: Sendable {
  let id: CacheEntry.ID
  /// ``CacheEntry/resource`` where that is another one than the key.
  let resource: Fingerprint?
  let digest: ImageDigest
  let bytes: Int
  /// A response as JSON. Of a variant only its name, for people: the other columns tell everything.
  let record: Data
  /// Whether it is one of those that are looked at together: no variant.
  let isResponse: Bool

  /// - Throws: where it can't be encoded.
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
