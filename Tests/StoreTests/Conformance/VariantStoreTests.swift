import Jobs
import Testing

@Suite("Variants in the cache")
struct VariantStoreTests {
  /// Stores a variant as the engine does.
  private static func keep(
    _ variant: StoredVariant, limit: Int = .max, _ store: StoreUnderTest
  ) async throws {
    let holder = JobID(at: .at(1))
    _ = try await store.reserve(
      variant.digest, bytes: variant.bytes, as: holder, limit: .max / 2)
    try await store.save(variant, within: limit, releasing: holder)
  }

  @Test("variants are found by their ids, also after reopening", arguments: StoreAdapter.allCases)
  func found(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let variant = StoredVariant.sample(1, 1, .sample(1), bytes: 10)
    try await Self.keep(variant, jobs.store)
    #expect(try await jobs.store.variant(variant.id) == variant)
    #expect(
      try await jobs.store.variant(StoredVariant.sample(1, 2, .sample(1), bytes: 1).id) == nil)
    #expect(try await jobs.store.cacheCounts() == (1, 10))
    let store = try await jobs.reopened()
    _ = try await store.recover()
    #expect(try await store.variant(variant.id) == variant)
    #expect(try await store.cacheCounts() == (1, 10))
    #expect(try await store.unreferencedImages(9) == [])
    try await store.audit()
    await store.close()
  }

  @Test(
    "a variant keeps its image after the reservation was released, until it is deleted",
    arguments: StoreAdapter.allCases)
  func references(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let variant = StoredVariant.sample(1, 1, .sample(1), bytes: 10)
    try await Self.keep(variant, store)
    #expect(try await store.refers(to: .sample(1)))
    let newer = StoredVariant.sample(1, 1, .sample(2), bytes: 20)
    try await Self.keep(newer, store)
    #expect(try await store.variant(variant.id) == newer)
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    #expect(try await store.delete(key: variant.id.key) == 1)
    #expect(try await store.unreferencedImages(9) == [.sample(2)])
    #expect(try await store.cacheCounts() == (0, 0))
    try await store.audit()
    await store.close()
  }

  @Test(
    "variants and responses are evicted together, the least recently used first",
    arguments: StoreAdapter.allCases)
  func leastRecentlyUsed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter, at: .at(0))
    let store = jobs.store
    let variants = (1...3).map { StoredVariant.sample($0, 0, .sample($0), bytes: 10) }
    for variant in variants { try await Self.keep(variant, limit: 30, store) }
    try await store.touch([variants[0].id: .at(5)])
    let entry = try CacheEntry.sample(9, .sample(9), bytes: 10)
    let holder = JobID(at: .at(1))
    _ = try await store.reserve(entry.image.digest, bytes: 10, as: holder, limit: .max / 2)
    _ = try await store.complete(
      Completion([], entry: entry, cacheLimit: 30, releasing: holder) { _ in false })
    #expect(try await store.variant(variants[1].id) == nil)
    try await Self.keep(.sample(4, 0, .sample(4), bytes: 20), limit: 30, store)
    #expect(try await store.variant(variants[0].id) == variants[0])
    #expect(try await store.variant(variants[2].id) == nil)
    #expect(try await store.entries(for: [entry.id.key]) == [[]])
    #expect(try await store.cacheCounts() == (2, 30))
    try await store.audit()
    await store.close()
  }

  @Test(
    "a variant that is too large or has no stored image is not stored, and releases it",
    arguments: StoreAdapter.allCases)
  func unkept(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let variant = StoredVariant.sample(1, 1, .sample(1), bytes: 10)
    try await Self.keep(variant, limit: 9, store)
    #expect(try await store.variant(variant.id) == nil)
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    try await store.save(variant, within: 99, releasing: JobID(at: .at(1)))
    #expect(try await store.variant(variant.id) == nil, "it is pending deletion")
    try await store.confirmDeletion([.sample(1)])
    try await store.save(variant, within: 99, releasing: JobID(at: .at(1)))
    #expect(try await store.variant(variant.id) == nil, "it is gone")
    #expect(try await store.cacheCounts() == (0, 0))
    try await store.audit()
    await store.close()
  }

  @Test("a variant is deleted when its image is evicted", arguments: StoreAdapter.allCases)
  func evict(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter, at: .at(10))
    let store = jobs.store
    let variant = StoredVariant.sample(1, 1, .sample(1), bytes: 40)
    try await Self.keep(variant, store)
    let made = try await store.reserve(.sample(2), bytes: 80, as: JobID(at: .at(2)), limit: 100)
    #expect(made == .reserved(evicted: [.sample(1)]))
    #expect(try await store.variant(variant.id) == nil)
    #expect(try await store.cacheCounts() == (0, 0))
    try await store.audit()
    await store.close()
  }

  @Test("clearing the cache deletes variants", arguments: StoreAdapter.allCases)
  func forgotten(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let variant = StoredVariant.sample(1, 1, .sample(1), bytes: 10)
    try await Self.keep(variant, store)
    #expect(try await store.clear() == 1)
    #expect(try await store.variant(variant.id) == nil)
    try await store.audit()
    await store.close()
  }
}

extension StoredVariant {
  /// Creates the variant with this number of an image. The variant's own image has the given
  /// digest.
  static func sample(
    _ image: Int, _ number: Int, _ digest: ImageDigest, bytes: Int
  ) -> StoredVariant {
    let id = CacheEntry.ID(
      key: Fingerprint(of: ["variants", "\(image)"]), selector: Fingerprint(of: ["\(number)"]))
    return StoredVariant(id: id, name: "webp 1x\(number) fill", digest: digest, bytes: bytes)
  }
}
