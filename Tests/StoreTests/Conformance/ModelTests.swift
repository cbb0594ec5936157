import Jobs
import TestSupport
import Testing

@Suite("Stores compared with a model")
struct ModelTests {
  @Test(
    "a store and the model return the same after any operations in any order",
    arguments: StoreAdapter.allCases,
    Array(1...8))
  func agrees(adapter: StoreAdapter, seed: Int) async throws {
    var pair = try TwoStores(adapter, seed: seed)
    for step in 0..<300 {
      try await pair.step(step)
      if step % 50 == 0 { try await pair.audit() }
    }
    try await pair.compareEverything()
    try await pair.audit()
    await pair.store.close()
  }

  @Test(
    "counts and references stay correct under concurrent operations",
    arguments: StoreAdapter.allCases, Array(1...2))
  func concurrentOperations(adapter: StoreAdapter, seed: Int) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    try await withThrowingTaskGroup(of: Void.self) { group in
      for worker in 0..<12 {
        group.addTask { try await Self.work(store, seed: UInt64(seed * 100 + worker)) }
      }
      try await group.waitForAll()
    }
    try await store.audit()
    let counts = try await store.counts()
    #expect(counts.imageBytes <= 300)
    #expect(try await store.cacheCounts().bytes <= 220)
    let reopened = try await jobs.reopened()
    #expect(try await reopened.counts() == counts)
    _ = try await reopened.recover()
    try await reopened.audit()
    await reopened.close()
  }

  /// Acts as a client, a worker and a cleaner.
  private static func work(_ store: StoreUnderTest, seed: UInt64) async throws {
    var random = SeededNumbers(state: seed)
    for step in 0..<20 {
      let digest = ImageDigest.sample(Int.random(in: 0..<12, using: &random))
      let captured = Bool.random(using: &random)
      let job = Job.random(at: step, captured: captured ? (digest, 50) : nil, using: &random)
      if captured {
        let room = try await store.reserve(digest, bytes: 50, as: job.id, limit: 300)
        guard try await cleaned(room, store) else { continue }
      }
      if Int.random(in: 0..<6, using: &random) == 0 {
        try await store.release(job.id)
      } else {
        _ = try await store.submit([job], key: nil, capacity: .max)
      }
      for (job, claim) in try await store.claim(2, at: .at(5_000)).jobs {
        let holder = JobID(at: .at(Int64(step)))
        let room = try await store.reserve(digest, bytes: 50, as: holder, limit: 300)
        let hasRoom = try await cleaned(room, store)
        let key = Int.random(in: 0..<9, using: &random)
        let entry = hasRoom ? try CacheEntry.sample(key, digest, bytes: 50) : nil
        let completion = Completion(
          [claim], entry: entry, cacheLimit: 220, releasing: holder
        ) {
          if hasRoom {
            $0.succeed(with: digest, bytes: 50, at: .at(Int64(step)))
          } else {
            $0.fail(.storageFull, at: .at(Int64(step)), keptFor: .milliseconds(1))
          }
          return true
        }
        _ = try await store.complete(completion)
        if Bool.random(using: &random) { _ = try await store.remove(job.id) }
      }
      _ = try await store.expire(1, at: .at(Int64(step)))
      try await store.confirmDeletion(store.unreferencedImages(1))
    }
  }

  private static func cleaned(
    _ room: StoreUnderTest.ReservationResult, _ store: StoreUnderTest
  ) async throws -> Bool {
    guard case .reserved(let evicted) = room else { return false }
    try await store.confirmDeletion(evicted)
    return true
  }
}

extension Job {
  fileprivate static func random(
    at step: Int, captured: (ImageDigest, bytes: Int)? = nil, using random: inout SeededNumbers
  ) -> Job {
    let tags = (0..<3).filter { _ in Bool.random(using: &random) }.map { "tag \($0)" }
    return .sample(
      Int64(step * 10), owner: ["anna", "bert", ""].randomElement(using: &random) ?? "",
      priority: Priority.allCases.randomElement(using: &random) ?? .normal, tags: tags,
      captured: captured)
  }
}
