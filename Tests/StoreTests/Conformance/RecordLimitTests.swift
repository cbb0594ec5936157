import Jobs
import TestSupport
import Testing

@Suite("Limit on the bytes of records")
struct RecordLimitTests {
  static let adapters: [StoreAdapter] = [.sqlite, .postgres]

  private static func capacity(_ bytes: Int) -> QueueCapacity {
    QueueCapacity(.max, recordBytes: bytes)
  }

  private static func jobs(_ numbers: Range<Int64>, owner: String) -> [Job] {
    numbers.map { .sample($0, owner: owner) }
  }

  @Test(
    "records count until their jobs are removed, and an owner has half if others have some",
    arguments: adapters)
  func limit(adapter: StoreAdapter) async throws {
    let place = try OpenJobs(adapter)
    let store = place.store
    // Each record has between 512 and 2,000 bytes.
    let limit = Self.capacity(40_000)
    let first = Self.jobs(1..<11, owner: "anna")
    #expect(try await store.submit(first, key: nil, capacity: limit) == .accepted)
    var number: Int64 = 11
    while try await store.submit(
      Self.jobs(number..<(number + 1), owner: "anna"), key: nil, capacity: limit) == .accepted
    {
      number += 1
      try #require(number < 100)
    }
    #expect(number > 25)
    // Anna uses the whole limit. Bert is refused, and then anna is too until she uses less than
    // half.
    let other = Self.jobs(200..<202, owner: "bert")
    #expect(try await store.submit(other, key: nil, capacity: limit) == .recordsFull)
    for job in try await store.claim(4, at: .at(10)).jobs {
      _ = try await store.complete(
        Completion([job.claim]) {
          $0.fail(.internal, at: .at(20), keptFor: .seconds(60))
          return true
        })
    }
    #expect(try await store.submit(other, key: nil, capacity: limit) == .recordsFull)
    for job in first[..<6] { #expect(try await store.remove(job.id)) }
    #expect(
      try await store.submit(Self.jobs(100..<101, owner: "anna"), key: nil, capacity: limit)
        == .recordsFull)
    #expect(try await store.submit(other, key: nil, capacity: limit) == .accepted)
    try await store.audit()
    await store.close()
  }

  @Test("the records of batch lines and of rejected lines count", arguments: adapters)
  func lines(adapter: StoreAdapter) async throws {
    let place = try OpenJobs(adapter)
    let store = place.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let some = BatchLines.sample(batch, after: 0, lines: Array(1...10), rejected: Array(11...60))
    #expect(
      try await store.base.add(some, to: batch.id, capacity: Self.capacity(6_000)) == .recordsFull)
    #expect(try await store.base.batch(batch.id)?.received == 0)
    guard
      case .accepted = try await store.base.add(some, to: batch.id, capacity: Self.capacity(30_000))
    else {
      Issue.record("the lines were not taken")
      return
    }
    try await store.audit()
    let rejected = BatchLines.sample(batch, after: 60, lines: [], rejected: Array(61...360))
    #expect(
      try await store.base.add(rejected, to: batch.id, capacity: Self.capacity(30_000))
        == .recordsFull)
    #expect(try await store.base.purge(batch.id, refusedAfter: nil))
    var ends = StoppedBatchJobs()
    repeat {
      ends = try await store.base.endStoppedJobs(100, keptFor: .seconds(1)) { _ in nil }
    } while ends.isMore
    #expect(try await store.base.batch(batch.id) == nil)
    try await store.audit()
    let jobs = Self.jobs(400..<420, owner: "anna")
    #expect(try await store.submit(jobs, key: nil, capacity: Self.capacity(30_000)) == .accepted)
    await store.close()
  }
}
