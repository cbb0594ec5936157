import Jobs
import PostgreSQL
import SQL
import Testing

@Suite("An image shared by very many jobs")
struct CrowdedImageTests {
  static let adapters: [StoreAdapter] = [.sqlite, .postgres]
  /// The number of references removed in one transaction.
  private static let portion = 2_000

  /// Submits jobs that the cache answered with a stored image of 40 bytes.
  private static func share(
    _ digest: ImageDigest, by count: Int, _ store: StoreUnderTest
  ) async throws -> [JobID] {
    let jobs = (0..<count).map { number -> Job in
      var job = Job.sample(Int64(number), at: 10)
      job.succeed(with: digest, bytes: 40, at: .at(10))
      return job
    }
    for start in stride(from: 0, to: count, by: 1_000) {
      let some = Array(jobs[start..<min(count, start + 1_000)])
      #expect(try await store.submit(some, key: nil, capacity: .max) == .accepted)
    }
    return jobs.map(\.id)
  }

  private static func jobs(having digest: ImageDigest, _ store: StoreUnderTest) async throws -> Int
  {
    try await store.sql.jobs(having: digest)
  }

  @Test(
    "a shared image is evicted over several calls, while others free space", arguments: adapters)
  func crowded(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let (store, portion) = (jobs.store, Self.portion)
    let (crowded, other) = (ImageDigest.sample(1), ImageDigest.sample(2))
    let first = try #require(await store.succeed(1, with: crowded, bytes: 40))
    _ = try await store.succeed(2, with: other, bytes: 40)
    let sharing = try await Self.share(crowded, by: 3 * portion + 100, store)
    let (third, fourth) = (JobID(at: .at(3)), JobID(at: .at(4)))
    #expect(
      try await store.reserve(.sample(3), bytes: 40, as: third, limit: 100)
        == .reserved(evicted: [other]))
    #expect(try await Self.jobs(having: crowded, store) == 2 * portion + 102)
    #expect(
      try await store.reserve(.sample(4), bytes: 40, as: fourth, limit: 100)
        == .incomplete(evicted: []))
    #expect(try await Self.jobs(having: crowded, store) == portion + 102)
    try await store.audit()

    let small = EmbeddedImage(Array(0..<20))
    _ = try await store.submit(.sample(1_000))
    let (_, claim) = try #require(await store.claimOne(at: .at(1_000)))
    let completed = try await store.complete(
      Completion([claim], image: small, imageLimit: 90) {
        $0.succeed(with: small.digest, bytes: 20, at: .at(1_000))
        return true
      })
    #expect(completed.jobs[0]?.image?.isKept == true && completed.evicted == [])
    #expect(try await Self.jobs(having: crowded, store) == 102)
    #expect(
      try await store.reserve(.sample(4), bytes: 40, as: fourth, limit: 120)
        == .reserved(evicted: [crowded]))
    for id in [first.id, sharing[0], sharing[sharing.count - 1]] {
      #expect(try await store.job(id)?.image?.isKept == false)
    }
    #expect(try await !store.refers(to: crowded))
    #expect(try await store.counts().imageBytes == 100)
    try await store.audit()
    await store.close()
  }

  @Test("all jobs lose a shared image whose bytes are corrupt", arguments: adapters)
  func lost(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let digest = ImageDigest.sample(1)
    let first = try #require(await store.succeed(1, with: digest, bytes: 40))
    let sharing = try await Self.share(digest, by: Self.portion + 100, store)
    #expect(try await Set(store.markLost(digest) ?? []) == Set(sharing + [first.id]))
    #expect(try await !store.refers(to: digest))
    #expect(try await store.job(sharing[0])?.image?.isKept == false)
    #expect(
      try await store.reserve(digest, bytes: 40, as: first.id, limit: 100) == .pendingDeletion)
    try await store.audit()
    await store.close()
  }
}
