import Foundation
import Jobs
import Testing

@Suite("Submitting jobs")
struct SubmittingTests {
  @Test(
    "a submitted job is stored unchanged, also after reopening",
    arguments: StoreAdapter.allCases)
  func kept(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1, tags: ["a", "nul \u{0} inside", "ü"])
    #expect(try await jobs.store.submit(job) == .accepted)
    #expect(try await jobs.store.job(job.id) == job)
    let reopened = try await jobs.reopened()
    #expect(try await reopened.job(job.id) == job)
    #expect(try await reopened.job(JobID(at: .at(1))) == nil)
    #expect(try await reopened.counts().jobs[.queued] == 1)
    await reopened.close()
  }

  @Test(
    "a submission over the capacity is refused completely, and one that fits is accepted",
    arguments: StoreAdapter.allCases)
  func capacity(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<5).map { Job.sample($0) }
    #expect(try await jobs.store.submit(batch, key: nil, capacity: 4) == .queueFull(wanting: 5))
    #expect(try await jobs.store.counts().jobs[.queued] == 0)
    #expect(try await jobs.store.submit(batch, key: nil, capacity: 5) == .accepted)
    #expect(
      try await jobs.store.submit([.sample(9)], key: nil, capacity: 5) == .queueFull(wanting: 1))
    _ = try await jobs.store.claimOne()
    #expect(try await jobs.store.submit([.sample(9)], key: nil, capacity: 5) == .accepted)
    await jobs.store.close()
  }

  @Test(
    "an owner can't exceed its own limit, even if it is alone",
    arguments: StoreAdapter.allCases)
  func ownPart(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    func submit(_ number: Int64, _ owner: String, _ part: Int?) async throws -> SubmitOutcome {
      try await jobs.store.submit(
        [.sample(number, owner: owner)], key: nil, capacity: QueueCapacity(100, ofOwner: part))
    }
    #expect(try await submit(0, "anna", 2) == .accepted)
    #expect(try await submit(1, "anna", 2) == .accepted)
    #expect(try await submit(2, "anna", 2) == .queueFull(wanting: 1))
    #expect(try await submit(3, "ben", 2) == .accepted)
    #expect(try await submit(4, "anna", nil) == .accepted)
    await jobs.store.close()
  }

  @Test("received bytes are summed up by owner and day", arguments: StoreAdapter.allCases)
  func bytes(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let (anna, ben) = (Owner("anna"), Owner("bén"))
    let store = jobs.store.base
    #expect(try await store.addBytes([anna: 5, ben: 0], on: 20_000) == [anna: 5, ben: 0])
    #expect(try await store.addBytes([anna: 7], on: 20_000) == [anna: 12])
    #expect(try await store.addBytes([anna: 1, ben: 2], on: 20_001) == [anna: 1, ben: 2])
    #expect(try await store.addBytes([anna: 0], on: 20_000) == [anna: 12])
    #expect(try await store.addBytes([anna: 4], on: 20_002) == [anna: 4])
    #expect(try await store.addBytes([anna: 0], on: 20_000) == [anna: 0])
    await jobs.store.close()
  }

  @Test(
    "an owner has the whole queue while alone, and half of it otherwise",
    arguments: StoreAdapter.allCases)
  func shares(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    func submit(_ range: Range<Int64>, _ owner: String) async throws -> SubmitOutcome {
      let batch = range.map { Job.sample($0, owner: owner) }
      return try await jobs.store.submit(batch, key: nil, capacity: 6)
    }
    #expect(try await submit(0..<6, "anna") == .accepted)
    #expect(try await submit(6..<7, "ben") == .queueFull(wanting: 1))
    _ = try await jobs.store.claimOne()
    #expect(try await submit(7..<8, "anna") == .queueFull(wanting: 1))
    #expect(try await submit(8..<9, "ben") == .accepted)
    // Other owners' jobs may be claimed in between.
    var left = 3
    while left > 0, let claimed = try await jobs.store.claimOne() {
      if claimed.job.owner.name == "anna" { left -= 1 }
    }
    #expect(try await submit(9..<10, "ben") == .accepted)
    #expect(try await submit(10..<11, "anna") == .accepted)
    #expect(try await submit(11..<12, "anna") == .queueFull(wanting: 1))
    let reopened = try await jobs.reopened()
    await reopened.close()
  }

  @Test(
    "a job with a long record needs several slots",
    arguments: [StoreAdapter.sqlite, .postgres])
  func weighs(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let long = Job.sample(1, tags: Array(repeating: String(repeating: "x", count: 1024), count: 12))
    #expect(try await jobs.store.submit([long], key: nil, capacity: 3) == .queueFull(wanting: 4))
    #expect(try await jobs.store.submit([long], key: nil, capacity: 4) == .accepted)
    #expect(
      try await jobs.store.submit([.sample(2)], key: nil, capacity: 4) == .queueFull(wanting: 1))
    // A change of the record's size is counted too.
    let edited = Job.sample(3)
    #expect(try await jobs.store.submit([edited], key: nil, capacity: 5) == .accepted)
    _ = try await jobs.store.update(edited.id, under: nil) {
      $0.edit(priority: nil, tags: long.tags)
    }
    #expect(
      try await jobs.store.submit([.sample(4)], key: nil, capacity: 8) == .queueFull(wanting: 1))
    #expect(try await jobs.store.submit([.sample(4)], key: nil, capacity: 9) == .accepted)
    let reopened = try await jobs.reopened()
    await reopened.close()
  }

  @Test(
    "a submission with an existing job fails alone and changes nothing",
    arguments: StoreAdapter.allCases)
  func duplicate(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1)
    _ = try await jobs.store.submit(job)
    await #expect(throws: StoreError.self) {
      try await jobs.store.submit([.sample(2), job], key: nil, capacity: 10)
    }
    #expect(try await jobs.store.counts().jobs[.queued] == 1)
    // The failed submission occupies no slot.
    #expect(try await jobs.store.submit([.sample(3)], key: nil, capacity: 2) == .accepted)
    #expect(
      try await jobs.store.submit([.sample(4)], key: nil, capacity: 2) == .queueFull(wanting: 1))
    await jobs.store.close()
  }

  @Test(
    "a repeated key with the same request returns the first jobs in their current state",
    arguments: StoreAdapter.allCases)
  func repeated(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<3).map { Job.sample(10 - $0) }
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    #expect(try await jobs.store.submit(batch, key: key, capacity: 3) == .accepted)
    _ = try await jobs.store.claimOne()
    let now = try await batch.asyncMap { try await jobs.store.job($0.id) }
    #expect(now[0]?.phase == .loading)
    let again = try await jobs.store.submit([.sample(20)], key: key, capacity: 3)
    #expect(again == .repeated(now.compactMap(\.self).map { .kept($0) }))
    let reopened = try await jobs.reopened()
    #expect(try await reopened.submit([.sample(20)], key: key, capacity: 3) == again)
    await reopened.close()
  }

  @Test(
    "a key with another request is refused, and another owner may use the same key",
    arguments: StoreAdapter.allCases)
  func keyReused(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    var key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    _ = try await jobs.store.submit([.sample(1)], key: key, capacity: 9)
    key.fingerprint = .sample(2)
    #expect(try await jobs.store.submit([.sample(2)], key: key, capacity: 9) == .keyReused)
    key.owner = Owner("bert")
    #expect(try await jobs.store.submit([.sample(2)], key: key, capacity: 9) == .accepted)
    await jobs.store.close()
  }

  @Test("a key of a refused submission is not stored", arguments: StoreAdapter.allCases)
  func refusedKey(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    #expect(
      try await jobs.store.submit([.sample(1)], key: key, capacity: 0) == .queueFull(wanting: 1))
    #expect(try await jobs.store.submit([.sample(1)], key: key, capacity: 1) == .accepted)
    await jobs.store.close()
  }

  @Test(
    "a known key is answered even without any capacity, and reserves no share",
    arguments: StoreAdapter.allCases)
  func lookedUpKey(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let none = QueueCapacity(.max, ofOwner: 0)
    func key(_ owner: String, of request: Int = 1) -> IdempotencyKey {
      IdempotencyKey(owner: Owner(owner), key: "k", fingerprint: .sample(request))
    }
    let first = Job.sample(0)
    #expect(try await jobs.store.submit([first], key: key("anna"), capacity: 6) == .accepted)
    #expect(
      try await jobs.store.submit([.sample(1)], key: key("anna"), capacity: none)
        == .repeated([.kept(first)]))
    #expect(
      try await jobs.store.submit([.sample(1)], key: key("anna", of: 2), capacity: none)
        == .keyReused)
    let bens = Job.sample(2, owner: "ben")
    #expect(
      try await jobs.store.submit([bens], key: key("ben"), capacity: none)
        == .queueFull(wanting: 1))
    let rest = (3..<8).map { Job.sample($0) }
    #expect(try await jobs.store.submit(rest, key: nil, capacity: 6) == .accepted)
    await jobs.store.close()
  }

  @Test(
    "a key outlives its jobs, and removed jobs are reported as gone",
    arguments: StoreAdapter.allCases, [true, false])
  func outlivingKey(adapter: StoreAdapter, byRemoval: Bool) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<3).map { Job.sample($0) }
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    _ = try await jobs.store.submit(batch, key: key, capacity: 9)
    if byRemoval {
      #expect(try await jobs.store.remove(batch[1].id))
    } else {
      _ = try await jobs.store.update(batch[1].id, under: nil) {
        $0.cancel(at: .at(1), keptFor: .seconds(1))
      }
      #expect(try await jobs.store.expire(9, at: .at(1_001)) == [batch[1].id])
    }
    let some = SubmitOutcome.repeated([.kept(batch[0]), .gone(batch[1].id), .kept(batch[2])])
    #expect(try await jobs.store.submit([.sample(5)], key: key, capacity: 9) == some)
    for id in [batch[0].id, batch[2].id] { #expect(try await jobs.store.remove(id)) }
    let reopened = try await jobs.reopened()
    let none = SubmitOutcome.repeated(batch.map { .gone($0.id) })
    #expect(try await reopened.submit([.sample(6)], key: key, capacity: 9) == none)
    try await reopened.audit()
    await reopened.close()
  }

  @Test(
    "expired keys are deleted in portions, the oldest first",
    arguments: StoreAdapter.allCases)
  func forgottenKeys(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let keys = (0..<4).map {
      IdempotencyKey(owner: Owner("anna"), key: "\($0)", fingerprint: .sample(1))
    }
    let first = [30, 10, 40, 20].map { Job.sample($0) }
    for (job, key) in zip(first, keys) {
      _ = try await jobs.store.submit([job], key: key, capacity: 9)
    }
    #expect(try await jobs.store.deleteKeys(before: .at(40), count: 2) == 2)
    let outcomes = try await keys.asyncMap {
      try await jobs.store.submit([.sample(50)], key: $0, capacity: 9)
    }
    #expect(
      outcomes == [
        .repeated([.kept(first[0])]), .accepted, .repeated([.kept(first[2])]), .accepted,
      ])
    #expect(try await jobs.store.deleteKeys(before: .at(40), count: 2) == 1)
    #expect(try await jobs.store.deleteKeys(before: .at(40), count: 2) == 0)
    await jobs.store.close()
  }

  @Test(
    "one of several concurrent submissions with one key is accepted, and the others repeat it",
    arguments: StoreAdapter.allCases)
  func atOnce(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    let candidates = (0..<8).map { Job.sample($0) }
    let outcomes = try await withThrowingTaskGroup(of: SubmitOutcome.self) { group in
      for job in candidates {
        group.addTask { try await jobs.store.submit([job], key: key, capacity: 99) }
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    let taken = try await candidates.asyncMap { try await jobs.store.job($0.id) }
      .compactMap(\.self)
    #expect(taken.count == 1)
    #expect(outcomes.count { $0 == .accepted } == 1)
    #expect(outcomes.count { $0 == .repeated(taken.map { .kept($0) }) } == 7)
    await jobs.store.close()
  }
}

extension Array {
  fileprivate func asyncMap<Value>(_ body: (Element) async throws -> Value) async rethrows
    -> [Value]
  {
    var values: [Value] = []
    for element in self { values.append(try await body(element)) }
    return values
  }
}
