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

  private static func owner(_ store: StoreUnderTest) throws -> any ImageOwner {
    try #require(store.base as? any ImageOwner)
  }
}
