import Jobs
import TestSupport
import Testing

@testable import Store

@Suite("The cost of a claim")
struct ClaimCostTests {
  /// Adds batches of one owner with a line of each priority, and one batch of another owner.
  private func queue(
    _ count: Int, in store: StoreUnderTest, host: @Sendable (Int64) -> String
  ) async throws {
    for number in 1...Int64(count) {
      let batch = Batch.sample(number, owner: number == 1 ? "ben" : "anna")
      _ = try await store.base.open(batch, key: nil)
      let jobs = Priority.allCases.enumerated().map { line, priority in
        Job(
          id: JobID(at: .at(number)), owner: batch.owner,
          submission: Submission(
            source: .url(SourceURL("https://\(host(number))/\(number)/\(line)")!, lowData: nil)),
          priority: priority, tags: [], createdAt: .at(number),
          batch: BatchPosition(id: batch.id, line: line + 1))
      }
      _ = try await store.base.add(
        BatchLines(after: 0, count: jobs.count, jobs: jobs), to: batch.id, capacity: .max)
    }
  }

  private func inspected(_ store: StoreUnderTest) async throws -> Int {
    try await store.sqlite.writer.perform { $0.counters.comparedPositions }
  }

  @Test("a claim compares few queues, however many one owner has")
  func claims() async throws {
    let jobs = try OpenJobs(.sqlite)
    let store = jobs.store
    try await queue(400, in: store) { "o\($0).example" }
    let claimed = try await store.claim(64, at: .at(90_000)).jobs
    #expect(claimed.count == 64)
    #expect(claimed.count { $0.job.owner.name == "ben" } == 5)
    // Every eighth claim considers the age and compares 32 queues.
    #expect(try await inspected(store) <= 64 * 10)
    try await store.audit()
    await store.close()
  }

  @Test("a claim compares few queues of owners without capacity, ready or parked")
  func full() async throws {
    let jobs = try OpenJobs(.sqlite)
    let store = jobs.store
    try await queue(400, in: store) { "\($0 % 2).example" }
    var workers = FairShare<Owner>()
    workers.acquireUnchecked(3, for: Owner("anna"))
    let owners = OwnerCapacity(workers, of: 4, at: .at(90_000))
    let parking = OriginCapacity(usual: 6, exceptions: ["https://1.example": 0])
    #expect(try await store.claim(1, at: .at(90_000), room: parking, owners: owners).jobs.isEmpty)
    let room = OriginCapacity(usual: 6)
    let claimed = try await store.claim(1, at: .at(90_000), room: room, owners: owners).jobs
    #expect(claimed.map(\.job.owner.name) == ["ben"])
    #expect(try await inspected(store) <= 64)
    try await store.audit()
    await store.close()
  }

  @Test("a claim compares few queues of jobs that waited for their origin")
  func parked() async throws {
    let jobs = try OpenJobs(.sqlite)
    let store = jobs.store
    try await queue(400, in: store) { _ in "o.example" }
    let origin = "https://o.example"
    let full = OriginCapacity(usual: 6, exceptions: [origin: 0])
    while !(try await store.claim(64, at: .at(90_000), room: full).jobs.isEmpty) {}
    let before = try await inspected(store)
    var owners: [String] = []
    for _ in 0..<8 {
      let room = OriginCapacity(usual: 6, exceptions: [origin: 2])
      owners += try await store.claim(2, at: .at(90_000), room: room).jobs.map(\.job.owner.name)
    }
    #expect(owners.count == 16 && owners.contains("ben"))
    // At most 16 queues of each owner are compared.
    #expect(try await inspected(store) - before <= 16 * 2 * 32)
    try await store.audit()
    await store.close()
  }
}
