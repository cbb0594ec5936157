import Jobs
import TestSupport
import Testing

@Suite("A job store as the owner of a bucket's images")
struct ImageOwnerTests {
  @Test(
    "a job store has a unique name, which stays the same after reopening",
    arguments: StoreAdapter.allCases)
  func name(adapter: StoreAdapter) async throws {
    let (jobs, others) = (try OpenJobs(adapter), try OpenJobs(adapter))
    let name = try await Self.owner(jobs.store).name()
    #expect(name.count >= 16)
    #expect(try await Self.owner(others.store).name() != name)
    let reopened = try await jobs.reopened()
    #expect(try await Self.owner(reopened).name() == name)
    await reopened.close()
    await others.store.close()
  }

  @Test(
    "a job store knows the images that it has reserved or is deleting, and no others",
    arguments: StoreAdapter.allCases)
  func knows(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let owner = try Self.owner(jobs.store)
    _ = try await jobs.store.reserve(.sample(1), bytes: 10, as: JobID(at: .at(1)), limit: 99)
    #expect(try await jobs.store.markOrphans([.sample(2)]) == [.sample(2)])
    #expect(try await owner.knowsAny(of: [.sample(9), .sample(1)]))
    #expect(try await owner.knowsAny(of: [.sample(2)]))
    #expect(try await !owner.knowsAny(of: [.sample(8), .sample(9)]))
    #expect(try await !owner.knowsAny(of: []))
    await jobs.store.close()
  }

  private static func owner(_ store: StoreUnderTest) throws -> any ImageOwner {
    try #require(store.base as? any ImageOwner)
  }
}
