import Caching
import Jobs
import Testing

@Suite("Cache entries")
struct CacheStoreTests {
  /// Stores an entry at the current time.
  private static func keep(
    _ entry: CacheEntry, limit: Int = .max, _ store: StoreUnderTest
  ) async throws {
    let holder = JobID(at: .at(1))
    _ = try await store.reserve(
      entry.image.digest, bytes: entry.image.bytes, as: holder, limit: .max / 2)
    _ = try await store.complete(
      Completion([], entry: entry, cacheLimit: limit, releasing: holder) { _ in false })
  }

  @Test(
    "entries are found by several keys in one query, also after reopening",
    arguments: StoreAdapter.allCases)
  func found(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let a = try CacheEntry.sample(1, selector: 1, .sample(1), bytes: 10)
    let b = try CacheEntry.sample(1, selector: 2, .sample(2), bytes: 10)
    let c = try CacheEntry.sample(2, .sample(1), bytes: 10)
    for entry in [a, b, c] { try await Self.keep(entry, jobs.store) }
    let keys = [c.id.key, Fingerprint(of: ["none"]), a.id.key]
    #expect(try await jobs.store.entries(for: keys) == [[c], [], [a, b]])
    #expect(try await jobs.store.cacheCounts() == (3, 20), "equal images count once")
    #expect(try await jobs.store.counts().imageBytes == 20)
    let store = try await jobs.reopened()
    _ = try await store.recover()
    #expect(try await store.entries(for: keys) == [[c], [], [a, b]])
    #expect(try await store.cacheCounts() == (3, 20))
    try await store.audit()
    await store.close()
  }

  @Test(
    "an entry replaces the one with the same id, and the old image is abandoned",
    arguments: StoreAdapter.allCases)
  func replacedByStoring(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    try await Self.keep(.sample(1, .sample(1), bytes: 10), store)
    let new = try CacheEntry.sample(1, .sample(2), bytes: 20)
    try await Self.keep(new, store)
    #expect(try await store.entries(for: [new.id.key]) == [[new]])
    #expect(try await store.cacheCounts() == (1, 20))
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    try await store.audit()
    await store.close()
  }

  @Test(
    "the least recently used entries are evicted for a new one",
    arguments: StoreAdapter.allCases)
  func leastRecentlyUsed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter, at: .at(0))
    let store = jobs.store
    let entries = try (1...4).map { try CacheEntry.sample($0, .sample($0), bytes: 10) }
    for entry in entries[..<3] { try await Self.keep(entry, limit: 30, store) }
    try await store.touch([entries[0].id: .at(5), entries[1].id: .at(4), entries[3].id: .at(9)])
    try await store.touch([entries[0].id: .at(1)])
    try await Self.keep(entries[3], limit: 30, store)
    let keys = entries.map(\.id.key)
    let kept = try await store.entries(for: keys).map(\.isEmpty)
    #expect(kept == [false, false, true, false])
    _ = try await store.complete(Completion([], cacheLimit: 19) { _ in false })
    #expect(try await store.entries(for: keys).map(\.isEmpty) == [false, true, true, true])
    #expect(try await store.cacheCounts() == (1, 10))
    #expect(try await store.unreferencedImages(9).count == 3)
    try await store.audit()
    await store.close()
  }

  @Test(
    "a lowered limit evicts the least recently used entries in a few transactions",
    arguments: [StoreAdapter.sqlite, .postgres])
  func loweredLimit(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter, at: .at(0))
    let store = jobs.store
    let entries = try (0..<600).map { try CacheEntry.sample($0, .sample($0), bytes: 10) }
    for entry in entries { try await Self.keep(entry, limit: .max, store) }
    try await store.touch([entries[0].id: .at(5)])
    for _ in 0..<99 {
      _ = try await store.complete(Completion([], cacheLimit: 100) { _ in false })
      if try await store.cacheCounts().bytes <= 100 { break }
    }
    #expect(try await store.cacheCounts() == (10, 100))
    let left = try await store.entries(for: entries.map(\.id.key)).flatMap(\.self)
    #expect(Set(left.map(\.id)) == Set([entries[0].id] + entries[591...].map(\.id)))
    try await store.audit()
    await store.close()
  }

  @Test(
    "an entry larger than the limit is not stored, and the others stay",
    arguments: StoreAdapter.allCases)
  func tooLarge(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    try await Self.keep(.sample(1, .sample(1), bytes: 10), limit: 30, store)
    try await Self.keep(.sample(2, .sample(2), bytes: 31), limit: 30, store)
    #expect(try await store.cacheCounts() == (1, 10))
    try await Self.keep(.sample(3, .sample(3), bytes: 1), limit: 0, store)
    #expect(try await store.cacheCounts() == (0, 0), "a limit of nothing keeps nothing")
    try await store.audit()
    await store.close()
  }

  @Test(
    "an entry is not stored if its image is pending deletion or was never stored",
    arguments: StoreAdapter.allCases
  )
  func withoutImage(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let entry = try CacheEntry.sample(1, .sample(1), bytes: 10)
    _ = try await store.complete(Completion([], entry: entry) { _ in false })
    #expect(try await store.cacheCounts() == (0, 0))
    try await Self.keep(entry, store)
    try await store.delete([entry.id])
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    _ = try await store.complete(Completion([], entry: entry) { _ in false })
    #expect(try await store.cacheCounts() == (0, 0))
    try await store.audit()
    await store.close()
  }

  @Test(
    "entries are deleted when their image is evicted; the oldest image is evicted first",
    arguments: StoreAdapter.allCases)
  func evict(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter, at: .at(10))
    let store = jobs.store
    let entry = try CacheEntry.sample(1, .sample(1), bytes: 40)
    let other = try CacheEntry.sample(2, .sample(1), bytes: 40)
    try await Self.keep(entry, store)
    try await Self.keep(other, store)
    let older = try #require(await store.succeed(5, with: .sample(2), bytes: 40))
    let newer = try #require(await store.succeed(15, with: .sample(3), bytes: 20))
    let first = try await store.reserve(.sample(4), bytes: 20, as: JobID(at: .at(1)), limit: 100)
    #expect(first == .reserved(evicted: [.sample(2)]))
    #expect(try await store.job(older.id)?.image?.isKept == false)
    #expect(try await store.cacheCounts() == (2, 40))
    let second = try await store.reserve(.sample(5), bytes: 40, as: JobID(at: .at(2)), limit: 100)
    #expect(second == .reserved(evicted: [.sample(1)]))
    #expect(try await store.cacheCounts() == (0, 0))
    #expect(try await store.entries(for: [entry.id.key, other.id.key]) == [[], []])
    #expect(try await store.job(newer.id) == newer)
    try await store.audit()
    await store.close()
  }

  @Test("an image stays while a job or an entry refers to it", arguments: StoreAdapter.allCases)
  func sharedImage(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let job = try #require(await store.succeed(1, with: .sample(1), bytes: 10))
    let entry = try CacheEntry.sample(1, .sample(1), bytes: 10)
    try await Self.keep(entry, store)
    #expect(try await store.remove(job.id))
    #expect(try await store.unreferencedImages(9) == [])
    #expect(try await store.refers(to: .sample(1)))
    #expect(try await store.delete(key: entry.id.key) == 1)
    #expect(try await !store.refers(to: .sample(1)))
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    await store.close()
  }

  @Test(
    "a key keeps its newest 32 responses, and all of its variants", arguments: StoreAdapter.allCases
  )
  func manyOfKey(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let other = try CacheEntry.sample(2, .sample(1), bytes: 10)
    try await Self.keep(other, store)
    let entries = try (0..<40).map {
      try CacheEntry.sample(1, selector: $0, .sample($0 / 2), bytes: 10)
    }
    for entry in entries { try await Self.keep(entry, store) }
    // Replacing an entry deletes no other one.
    try await Self.keep(entries[39], store)
    let found = try await store.entries(for: [entries[0].id.key, other.id.key])
    #expect(found == [Array(entries[8...]), [other]])
    #expect(try await store.cacheCounts() == (33, 170), "sixteen images, and the other's")
    #expect(try await Set(store.unreferencedImages(99)) == [.sample(0), .sample(2), .sample(3)])
    for number in 0..<40 {
      let variant = StoredVariant.sample(1, number, .sample(50), bytes: 10)
      let holder = JobID(at: .at(1))
      _ = try await store.reserve(variant.digest, bytes: 10, as: holder, limit: .max / 2)
      try await store.save(variant, within: .max, releasing: holder)
    }
    #expect(try await store.cacheCounts() == (73, 180))
    try await store.audit()
    await store.close()
  }

  @Test(
    "entries are deleted by key or all together, and the number is returned",
    arguments: StoreAdapter.allCases)
  func forgotten(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    for number in 0..<9 {
      try await Self.keep(.sample(number % 3, selector: number, .sample(number), bytes: 10), store)
    }
    #expect(try await store.delete(key: Fingerprint(of: ["1"])) == 3)
    #expect(try await store.delete(key: Fingerprint(of: ["1"])) == 0)
    #expect(try await store.clear() == 6)
    #expect(try await store.clear() == 0)
    #expect(try await store.cacheCounts() == (0, 0))
    #expect(try await store.unreferencedImages(99).count == 9)
    try await store.audit()
    await store.close()
  }

  @Test("an unreadable entry is skipped", arguments: [StoreAdapter.sqlite, .postgres])
  func unreadable(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let good = try CacheEntry.sample(1, selector: 1, .sample(1), bytes: 10)
    let bad = try CacheEntry.sample(1, selector: 2, .sample(2), bytes: 10)
    try await Self.keep(good, store)
    try await Self.keep(bad, store)
    try jobs.damage("cache", "selector", of: bad.id.selector)
    #expect(try await store.entries(for: [good.id.key]) == [[good]])
    await store.close()
  }
}

@Suite("Partitions and use times of cache entries")
struct CachePartitionTests {
  private static func keep(
    _ entry: CacheEntry, limit: Int = .max, _ store: StoreUnderTest,
    lastUse: @escaping CacheEntry.LastUse = { _ in nil }
  ) async throws {
    let holder = JobID(at: .at(1))
    _ = try await store.reserve(
      entry.image.digest, bytes: entry.image.bytes, as: holder, limit: .max / 2)
    var completion = Completion([], entry: entry, cacheLimit: limit, releasing: holder) { _ in
      false
    }
    completion.lastUse = lastUse
    _ = try await store.complete(completion)
  }

  private static func entry(_ key: Int, of resource: Int, _ digest: Int) throws -> CacheEntry {
    let plain = try CacheEntry.sample(key, .sample(digest), bytes: 10)
    return CacheEntry(
      id: plain.id, resource: Fingerprint(of: ["\(resource)"]), response: plain.response,
      image: plain.image)
  }

  @Test(
    "a resource's entries are deleted by its name in portions, whatever their keys",
    arguments: StoreAdapter.allCases)
  func resource(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let entries = try [
      Self.entry(1, of: 1, 1), Self.entry(2, of: 1, 1), Self.entry(3, of: 1, 2),
      Self.entry(4, of: 2, 3),
    ]
    for entry in entries { try await Self.keep(entry, jobs.store) }
    let store = try await jobs.reopened()
    _ = try await store.recover()
    #expect(try await store.entries(for: entries.map(\.id.key)) == entries.map { [$0] })
    let name = Fingerprint(of: ["1"])
    var gone: [ImageDigest] = []
    for count in [2, 1, 0] {
      let some = try await store.delete(resource: name, count: 2)
      #expect(some.count == count)
      gone += some
      try await store.audit()
    }
    #expect(Set(gone) == [.sample(1), .sample(2)])
    #expect(try await store.cacheCounts() == (1, 10))
    await store.close()
  }

  @Test(
    "an entry that was used since its stored time stays, and another one is evicted",
    arguments: StoreAdapter.allCases)
  func lastUse(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter, at: .at(0))
    let store = jobs.store
    let entries = try (1...4).map { try CacheEntry.sample($0, .sample($0), bytes: 10) }
    for entry in entries[..<3] { try await Self.keep(entry, limit: 30, store) }
    let used = Set([entries[0].id, entries[1].id])
    try await Self.keep(entries[3], limit: 30, store) { used.contains($0) ? .at(5) : nil }
    let kept = try await store.entries(for: entries.map(\.id.key)).map(\.isEmpty)
    #expect(kept == [false, false, true, false])
    // If all entries were used since, the least recently used one is evicted.
    let more = try CacheEntry.sample(5, .sample(5), bytes: 30)
    try await Self.keep(more, limit: 30, store) { _ in .at(9) }
    #expect(try await store.cacheCounts() == (1, 30))
    #expect(try await store.entries(for: [more.id.key]) == [[more]])
    let variant = StoredVariant.sample(1, 1, .sample(6), bytes: 10)
    let holder = JobID(at: .at(1))
    _ = try await store.reserve(variant.digest, bytes: 10, as: holder, limit: .max / 2)
    try await store.save(variant, within: 40, releasing: holder) { _ in .at(20) }
    #expect(try await store.cacheCounts() == (2, 40))
    try await store.audit()
    await store.close()
  }

  @Test(
    "the size of equal images counts once, and entries' records count too",
    arguments: [StoreAdapter.sqlite, .postgres])
  func records(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let names = String(repeating: "x", count: 60_000)
    for number in 0..<100 {
      let plain = try CacheEntry.sample(number, .sample(1), bytes: 10)
      var response = plain.response
      response.fields[0].value = names
      let entry = CacheEntry(id: plain.id, response: response, image: plain.image)
      try await Self.keep(entry, limit: 1_000_000, store)
    }
    let counts = try await store.cacheCounts()
    #expect(counts.bytes == 10)
    // A MiB is free, and a million bytes are the limit.
    #expect(33...34 ~= counts.entries, "\(counts.entries)")
    #expect(try await store.entries(for: [Fingerprint(of: ["99"])])[0].count == 1)
    try await store.audit()
    let again = try await jobs.reopened()
    #expect(try await again.cacheCounts() == counts)
    await again.close()
  }
}
