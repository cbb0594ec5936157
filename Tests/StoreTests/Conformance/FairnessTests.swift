import Jobs
import TestSupport
import Testing

@Suite("Fairness between owners and batches")
struct FairnessTests {
  /// Adds a batch with lines of the given priority.
  private static func batch(
    _ store: StoreUnderTest, _ number: Int64, owner: String = "anna", _ count: Int,
    priority: Priority = .normal, hosts: Int = 50
  ) async throws -> Batch {
    let batch = Batch.sample(number, owner: owner)
    _ = try await store.base.open(batch, key: nil)
    let jobs = (1...count).map { line in
      Job(
        id: JobID(at: .at(number)), owner: batch.owner,
        submission: Submission(
          source: .url(
            SourceURL("https://o\(line % hosts).example/\(number)/\(line)")!, lowData: nil)),
        priority: priority, tags: [], createdAt: .at(number),
        batch: BatchPosition(id: batch.id, line: line))
    }
    _ = try await store.base.add(
      BatchLines(after: 0, count: count, jobs: jobs), to: batch.id, capacity: .max)
    return batch
  }

  @Test(
    "a small owner gets at least half of its share while another has very many jobs",
    arguments: StoreAdapter.allCases)
  func share(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    _ = try await Self.batch(store, 1, 3_000, priority: .veryHigh)
    for number in 0..<200 {
      _ = try await store.submit(
        .sample(
          10_000 + Int64(number), owner: "ben", priority: .veryLow,
          url: "https://b.example/\(number)"))
    }
    var first: [Job] = []
    for _ in 0..<4 { first += try await store.claim(64, at: .at(20_000)).jobs.map(\.job) }
    #expect(first.count == 256)
    #expect(first.count { $0.owner.name == "ben" } >= 64)
    let lines = first.compactMap { $0.batch?.line }
    #expect(lines == Array(1...lines.count), "in submission order")
    try await store.audit()
    await store.close()
  }

  @Test(
    "jobs of an owner without capacity are skipped, ready or parked, whatever their priority",
    arguments: StoreAdapter.allCases)
  func full(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    for number in 1...4 {
      _ = try await Self.batch(store, Int64(number), 60, priority: Priority.allCases[number])
    }
    // This parks some of anna's jobs.
    let parking = OriginCapacity(usual: 0)
    #expect(try await store.claim(99, at: .at(20), room: parking).jobs.isEmpty)
    for number in 0..<40 {
      _ = try await store.submit(
        .sample(
          1_000 + Int64(number), owner: "ben", priority: .veryLow,
          url: "https://b.example/\(number)"))
    }
    var workers = FairShare<Owner>()
    workers.acquireUnchecked(16, for: Owner("anna"))
    workers.recordDemand(of: Owner("ben"), at: .at(89_000))
    // Anna's jobs are old, and every eighth claim considers the age.
    let owners = OwnerCapacity(workers, of: 32, at: .at(90_000))
    let first = try await store.claim(16, at: .at(90_000), owners: owners)
    #expect(first.jobs.map(\.job.owner.name) == Array(repeating: "ben", count: 8))
    #expect(!first.isQueueEmpty)
    workers.acquireUnchecked(8, for: Owner("ben"))
    let none = OwnerCapacity(workers, of: 32, at: .at(90_000))
    #expect(try await store.claim(8, at: .at(90_000), owners: none).jobs.isEmpty)
    workers.release(4, of: Owner("anna"))
    workers.release(2, of: Owner("ben"))
    // Six jobs fit; anna may have four of them.
    let rest = OwnerCapacity(workers, of: 32, at: .at(90_000))
    let next = try await store.claim(14, at: .at(90_000), owners: rest).jobs.map(\.job.owner.name)
    #expect(next.count == 6 && next.count { $0 == "anna" } == 4)
    try await store.audit()
    await store.close()
  }

  @Test(
    "one of the reserved workers is free for any owner, and the next one for another owner",
    arguments: StoreAdapter.allCases)
  func kept(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    for owner in ["anna", "ben", "carl"] {
      for number in 0..<20 {
        _ = try await store.submit(
          .sample(Int64(number), owner: owner, url: "https://\(owner).example/\(number)"))
      }
    }
    var workers = FairShare<Owner>()
    workers.acquireUnchecked(12, for: Owner("anna"))
    let owners = OwnerCapacity(workers, of: 16, at: .at(50))
    let claimed = try await store.claim(4, at: .at(50), owners: owners).jobs.map(\.job.owner.name)
    #expect(Set(claimed) == ["ben", "carl"] && claimed.count == 2)
    let alone = OwnerCapacity(FairShare<Owner>(), of: 3, at: .at(50))
    #expect(try await store.claim(3, at: .at(50), owners: alone).jobs.count == 3)
    try await store.audit()
    await store.close()
  }

  @Test(
    "fairness considers the loading jobs of all instances", arguments: StoreAdapter.shared)
  func instances(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let (a, b) = (jobs.store, jobs.store.other)
    _ = try await Self.batch(a, 1, 500)
    // One instance has loaded many of anna's jobs before ben submits any.
    #expect(try await a.claim(40, at: .at(10)).jobs.count == 40)
    for number in 0..<60 {
      _ = try await a.submit(
        .sample(1_000 + Int64(number), owner: "ben", url: "https://b.example/\(number)"))
    }
    let next = try await b.claim(30, at: .at(2_000)).jobs.map(\.job.owner.name)
    #expect(next.allSatisfy { $0 == "ben" })
    await a.close()
  }

  @Test(
    "claims reach every owner, however many there are, with ready or parked jobs",
    arguments: StoreAdapter.allCases)
  func lanes(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let lanes = 150
    for lane in 0..<lanes {
      for number in 0..<2 {
        _ = try await store.submit(
          .sample(
            Int64(lane * 10 + number), owner: "owner \(lane)",
            url: "https://\(number == 0 ? "a" : "b").example/\(lane)"))
      }
    }
    // One origin has no capacity at first.
    var room = OriginCapacity(usual: 1_000, exceptions: ["https://b.example": 0])
    var owners: Set<String> = []
    for _ in 0..<3 {
      owners.formUnion(
        try await store.claim(50, at: .at(5_000), room: room).jobs.map(\.job.owner.name))
    }
    #expect(owners.count == lanes)
    #expect(try await store.claim(50, at: .at(5_000), room: room).jobs.isEmpty)
    room.exceptions = ["https://b.example": 60]
    owners = []
    for _ in 0..<5 {
      let claimed = try await store.claim(60, at: .at(5_000), room: room).jobs
      owners.formUnion(claimed.map(\.job.owner.name))
    }
    #expect(owners.count == lanes)
    #expect(try await store.claim(50, at: .at(5_000)).jobs.isEmpty)
    try await store.audit()
    await store.close()
  }

  @Test(
    "many batches of one owner take turns at one origin, after all of their jobs were parked",
    arguments: StoreAdapter.allCases)
  func parkedBatches(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    for number in 1...20 { _ = try await Self.batch(store, Int64(number), 3, hosts: 1) }
    #expect(
      try await store.claim(99, at: .at(30), room: OriginCapacity(usual: 0)).jobs.isEmpty)
    var claimed: [BatchID?] = []
    for _ in 0..<20 {
      claimed += try await store.claim(1, at: .at(30), room: OriginCapacity(usual: 1)).jobs
        .map(\.job.batch?.id)
    }
    #expect(claimed.count == 20 && Set(claimed).count == 20)
    // A single claim goes around in the same way, although each batch was served before.
    let next = try await store.claim(20, at: .at(30), room: OriginCapacity(usual: 20)).jobs
      .map(\.job.batch?.id)
    #expect(next.count == 20 && Set(next).count == 20)
    try await store.audit()
    await store.close()
  }
}
