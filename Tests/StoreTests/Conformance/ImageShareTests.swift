import Foundation
import Jobs
import Testing

@Suite("Sharing the storage limit between owners")
struct ImageShareTests {
  /// Runs a job of an owner, which succeeds with an image of this size.
  private static func succeed(
    _ store: StoreUnderTest, _ number: Int64, owner: String, _ digest: ImageDigest, bytes: Int,
    limit: Int, at moment: Int64? = nil
  ) async throws -> JobID {
    let job = Job.sample(number, owner: owner)
    _ = try await store.submit(job)
    let (_, claim) = try #require(await store.claimOne(at: .at(number)))
    let holder = JobID(at: .at(number))
    let room = try await store.reserve(digest, bytes: bytes, as: holder, limit: limit)
    guard case .reserved(let evicted) = room else { throw StoreError.full }
    try await store.confirmDeletion(evicted)
    let moment = moment ?? number
    _ = try await store.complete(
      Completion([claim], releasing: holder) {
        $0.succeed(with: digest, bytes: bytes, at: .at(moment))
        return true
      })
    return job.id
  }

  private static func isKept(_ id: JobID, _ store: StoreUnderTest) async throws -> Bool {
    try await store.job(id)?.image?.isKept == true
  }

  @Test(
    "an owner with very many images evicts its own ones, not those of others",
    arguments: StoreAdapter.allCases)
  func flood(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let others = try await Self.succeed(
      store, 1, owner: "ben", .sample(1), bytes: 40, limit: 200)
    var own: [JobID] = []
    for number in 2...25 {
      own.append(
        try await Self.succeed(
          store, Int64(number), owner: "anna", .sample(number), bytes: 20, limit: 200))
    }
    #expect(try await Self.isKept(others, store))
    // The owner keeps its newest images.
    for (index, id) in own.enumerated() {
      #expect(try await Self.isKept(id, store) == (index >= own.count - 8), "\(index)")
    }
    #expect(try await store.counts().imageBytes == 200)
    try await store.audit()
    let reopened = try await jobs.reopened()
    try await reopened.audit()
    await reopened.close()
  }

  @Test(
    "the oldest image is evicted if no owner exceeds half of the limit",
    arguments: StoreAdapter.allCases)
  func withinShares(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let oldest = try await Self.succeed(
      store, 1, owner: "ben", .sample(1), bytes: 60, limit: 200)
    let second = try await Self.succeed(
      store, 2, owner: "anna", .sample(2), bytes: 60, limit: 200)
    let third = try await Self.succeed(
      store, 3, owner: "carl", .sample(3), bytes: 60, limit: 200)
    _ = try await Self.succeed(store, 4, owner: "anna", .sample(4), bytes: 30, limit: 200)
    #expect(try await !Self.isKept(oldest, store))
    #expect(try await Self.isKept(second, store))
    #expect(try await Self.isKept(third, store))
    try await store.audit()
    await store.close()
  }

  @Test(
    "an image with jobs of several owners counts for none of them",
    arguments: StoreAdapter.allCases)
  func shared(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let first = try await Self.succeed(
      store, 1, owner: "anna", .sample(1), bytes: 120, limit: 200)
    _ = try await Self.succeed(store, 2, owner: "ben", .sample(1), bytes: 120, limit: 200)
    // Without the shared image, anna has less than half. So the oldest image is evicted, which
    // belongs to ben.
    let bens = try await Self.succeed(
      store, 3, owner: "ben", .sample(3), bytes: 20, limit: 200, at: 0)
    _ = try await Self.succeed(store, 4, owner: "anna", .sample(4), bytes: 60, limit: 200)
    _ = try await Self.succeed(store, 5, owner: "anna", .sample(5), bytes: 20, limit: 200)
    #expect(try await Self.isKept(first, store))
    #expect(try await !Self.isKept(bens, store))
    try await store.audit()
    await store.close()
  }
}
