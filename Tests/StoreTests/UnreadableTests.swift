import Foundation
import Jobs
import TestSupport
import Testing

@testable import SQL

/// Tests with a database that a disk, a person or another program has changed.
@Suite("Unreadable rows")
struct UnreadableTests {
  static let adapters: [StoreAdapter] = [.sqlite, .postgres]

  /// Damage to the row of a loading job.
  enum Damage: String, CaseIterable {
    case noRecord, loadingRecord, finishedRecord, recordOfAnotherOwner, unknownPhase, unknownState

    func apply(to job: Job, in jobs: OpenJobs) throws {
      switch self {
      case .noRecord: try jobs.damage("jobs", "id", of: job.id)
      case .unknownPhase: try jobs.damage("jobs", "id", of: job.id, "phase = 9")
      case .unknownState: try jobs.damage("queue", "id", of: job.id, "state = 9")
      default:
        let submitted = try JobRow(changed(job)).submitted
        try jobs.damage("jobs", "id", of: job.id, "submitted = \(jobs.literal(submitted))")
      }
    }

    private func changed(_ job: Job) -> Job {
      var job = job
      switch self {
      case .loadingRecord: job.start(at: .at(5))
      case .finishedRecord:
        job.start(at: .at(5))
        job.succeed(with: .sample(1), bytes: 1, at: .at(6))
      default:
        job = Job(
          id: job.id, owner: Owner("bert"), submission: job.submission, priority: job.priority,
          tags: [], createdAt: job.createdAt)
      }
      return job
    }
  }

  @Test(
    "an unreadable job returns an error, and the store works with all other jobs",
    arguments: Damage.allCases, adapters)
  func damaged(damage: Damage, adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<3).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    #expect(try await jobs.store.claim(2, at: .at(9)).jobs.count == 2)
    try damage.apply(to: batch[0], in: jobs)
    let store = try await jobs.reopened()
    _ = try await store.recover()
    #expect(try await store.claim(9, at: .at(10)).jobs.map(\.job.id) == [batch[1].id, batch[2].id])
    let error = await #expect(throws: StoreError.self) { try await store.job(batch[0].id) }
    guard case .unreadable(let detail) = try #require(error) else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(!detail.contains("example.org"), "a record holds credentials")
    await #expect(throws: StoreError.self) {
      try await store.update(batch[0].id, under: nil) { $0.edit(priority: .high, tags: nil) }
    }
    await #expect(throws: StoreError.self) { try await store.remove(batch[0].id) }
    var query = JobQuery(owner: nil, now: .at(10), limit: 9)
    #expect(try await store.jobs(query).jobs.map(\.id) == [batch[2].id, batch[1].id])
    query.phases = Set(Phase.allCases)
    #expect(try await store.jobs(query).jobs.map(\.id) == [batch[2].id, batch[1].id])
    _ = try await store.expire(9, at: .at(.max / 2))
    await store.close()
  }

  @Test("an unreadable job does not block the queue, whatever its position", arguments: adapters)
  func queued(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<5).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    for job in batch[..<2] { try jobs.damage("jobs", "id", of: job.id) }
    let store = try await jobs.reopened()
    // An empty claim would mean that the queue is empty.
    for job in batch[2...] {
      #expect(try await store.claim(1, at: .at(9)).jobs.map(\.job.id) == [job.id])
    }
    #expect(try await store.claim(1, at: .at(9)).jobs.isEmpty)
    await store.close()
  }

  @Test("unreadable jobs do not end a listing", arguments: adapters)
  func listed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<5).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    for job in batch[1...] { try jobs.damage("jobs", "id", of: job.id) }
    let page = try await jobs.store.jobs(JobQuery(owner: nil, now: .at(9), limit: 2))
    #expect(page.jobs.map(\.id) == [batch[0].id] && !page.hasMore)
    await jobs.store.close()
  }

  @Test(
    "an unreadable message is not sent, and does not block others",
    arguments: adapters)
  func message(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let instance = try await store.instance
    let batch = (0..<3 as Range<Int64>).map { number in
      let plain = Job.sample(number)
      var submission = plain.submission
      let host = number == 2 ? "b" : "a"
      submission.webhook = Webhook(
        url: SourceURL("https://\(host).example/hook")!, events: WebhookEvent.jobEnds)
      return Job(
        id: plain.id, owner: plain.owner, submission: submission, priority: .normal, tags: [],
        createdAt: plain.createdAt)
    }
    _ = try await store.submit(batch, key: nil, capacity: 9)
    store.clock.set(.at(10))
    for job in batch {
      _ = try await store.update(job.id, under: nil) { $0.cancel(at: .at(5), keptFor: .seconds(9)) }
    }
    try jobs.damage("messages", "subject", of: batch[0].id)
    func take(_ sending: [WebhookMessage]) async throws -> ClaimedMessages {
      try await store.base.claimMessages(
        MessageRequest(by: instance, sending: Set(sending.map(\.id)), count: 9, perHost: 2))
    }
    let taken = try await take([])
    #expect(taken.messages.map(\.id.subject) == [batch[1].id, batch[2].id])
    #expect(taken.unreadable == 1)
    #expect(try await take(taken.messages) == ClaimedMessages())
    #expect(try await store.base.waitingMessages() == 2)
    // A read of this message returns an error.
    await #expect(throws: StoreError.self) { try await store.base.messages(of: batch[0].id) }
    // A message that becomes unreadable while it is sent still stores its result.
    try jobs.damage("messages", "subject", of: batch[1].id)
    var sent = taken.messages[0]
    sent.recordAnswer(
      WebhookAnswer(at: .at(20), time: .zero, status: 200, error: nil), under: .standard, dice: 0)
    try await store.base.saveResult(sent, by: instance)
    #expect(try await store.base.messages(of: batch[1].id) == [sent])
    await store.close()
  }

  @Test(
    "an unreadable batch blocks neither its jobs nor other batches",
    arguments: adapters)
  func batch(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    var all: [(batch: Batch, jobs: [Job])] = []
    for number in 1...4 as ClosedRange<Int64> {
      let batch = Batch.sample(number)
      _ = try await store.base.open(batch, key: nil)
      let lines = BatchLines.sample(batch, after: 0, lines: [1, 2])
      _ = try await store.base.add(lines, to: batch.id, capacity: 99)
      if number != 2 { _ = try await store.base.close(batch.id) }
      all.append((batch, lines.jobs))
    }
    _ = try await store.base.cancel(all[2].batch.id)
    for number in [0, 2] { try jobs.damage("batches", "id", of: all[number].batch.id) }

    let ends = try await store.base.endStoppedJobs(99, keptFor: .seconds(9)) { _ in nil }
    #expect(Set(ends.cancelled.map(\.id)) == Set(all[2].jobs.map(\.id)))
    _ = try await store.base.cancel(all[3].batch.id)
    let others = try await store.base.endStoppedJobs(99, keptFor: .seconds(9)) { _ in nil }
    #expect(Set(others.cancelled.map(\.id)) == Set(all[3].jobs.map(\.id)))

    let claims = try await store.claim(9, at: .at(10)).jobs.filter {
      $0.job.batch?.id == all[0].batch.id || $0.job.batch?.id == all[1].batch.id
    }
    #expect(claims.count == 4)
    let completed = try await store.complete(
      Completion(claims.map(\.claim)) {
        $0.fail(.notCached, at: .at(30), keptFor: .seconds(60))
        return true
      })
    #expect(completed.jobs.compactMap(\.self).count == 4)
    _ = try await store.base.finishBatches()

    store.clock.set(.at(100_000))
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9) > 0)
    #expect(try await store.base.batch(all[1].batch.id)?.state == .finished)
    var query = BatchQuery(owner: nil, now: .at(10), limit: 1)
    let first = try await store.base.batches(query)
    #expect(first.batches.map(\.id) == [all[3].batch.id] && first.hasMore)
    query.before = all[3].batch.id
    let second = try await store.base.batches(query)
    #expect(second.batches.map(\.id) == [all[1].batch.id] && !second.hasMore)
    await #expect(throws: StoreError.self) { try await store.base.batch(all[0].batch.id) }
    await store.close()
  }

  @Test(
    "a job with an invalid priority does not block other jobs of its origin", arguments: adapters)
  func parked(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<3).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    let none = OriginCapacity(usual: 0)
    #expect(try await jobs.store.claim(3, at: .at(9), room: none).jobs.isEmpty)
    try jobs.damage("queue", "id", of: batch[0].id, "priority = -7")
    let store = try await jobs.reopened()
    _ = try await store.recover()
    let claimed = try await store.claim(3, at: .at(9)).jobs.map(\.job.id)
    #expect(claimed.contains(batch[1].id) && claimed.contains(batch[2].id))
    await store.close()
  }
}
