import Jobs
import Testing

@Suite("Changing jobs")
struct UpdatingTests {
  @Test(
    "a change is stored and returned, and a rejected one leaves the job unchanged",
    arguments: StoreAdapter.allCases)
  func changed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1)
    _ = try await jobs.store.submit(job)
    let changed = try await jobs.store.update(job.id, under: nil) {
      $0.edit(priority: nil, tags: ["new"])
    }
    #expect(changed?.tags == ["new"] && changed?.revision == 1)
    let left = try await jobs.store.update(job.id, under: nil) {
      _ = $0.edit(priority: .high, tags: nil)
      return false
    }
    #expect(left == changed)
    #expect(try await jobs.store.job(job.id) == changed)
    #expect(try await jobs.store.update(JobID(at: .at(1)), under: nil) { _ in true } == nil)
    await jobs.store.close()
  }

  @Test("a job that stops loading loses its claim", arguments: StoreAdapter.allCases)
  func claimEnds(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1)
    _ = try await jobs.store.submit(job)
    let (_, claim) = try #require(await jobs.store.claimOne())
    let counted = try await jobs.store.update(job.id, under: claim) {
      $0.report(.init(completed: 7))
      return true
    }
    #expect(counted?.progress.completed == 7 && counted?.phase == .loading)
    _ = try await jobs.store.update(job.id, under: nil) {
      $0.cancel(at: .at(2), keptFor: .seconds(1))
    }
    let late = try await jobs.store.update(job.id, under: claim) { _ in true }
    #expect(late == nil)
    let counts = try await jobs.store.counts()
    #expect(counts.jobs[.cancelled] == 1 && counts.jobs[.loading] == 0)
    await jobs.store.close()
  }

  @Test(
    "a raised job goes to the end of its new priority, a lowered one to the front",
    arguments: StoreAdapter.allCases)
  func priorities(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let normal = (0..<2).map { Job.sample($0) }
    let high = Job.sample(2, priority: .high)
    let low = Job.sample(3, priority: .low)
    _ = try await store.submit(normal + [high, low], key: nil, capacity: 9)
    _ = try await store.update(low.id, under: nil) { $0.edit(priority: .normal, tags: nil) }
    _ = try await store.update(high.id, under: nil) { $0.edit(priority: .normal, tags: nil) }
    let later = Job.sample(4)
    _ = try await store.submit(later)
    let order = try await store.claim(9, at: .at(9)).jobs.map(\.job.id)
    #expect(order == [high.id, normal[0].id, normal[1].id, low.id, later.id])
    await store.close()
  }

  @Test("concurrent changes of one job are all applied", arguments: StoreAdapter.allCases)
  func noLostUpdates(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let job = Job.sample(1)
    _ = try await store.submit(job)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<200 {
        group.addTask {
          _ = try await store.update(job.id, under: nil) {
            $0.edit(priority: nil, tags: $0.tags + ["\(number)"])
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try await store.job(job.id)?.tags.count == 200)
    await store.close()
  }

  @Test(
    "a job that is queued again needs a slot, and stays unchanged without one",
    arguments: StoreAdapter.allCases)
  func place(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = (0..<3).map { Job.sample($0) }
    _ = try await store.submit(batch, key: nil, capacity: 3)
    for job in batch.prefix(2) { try await Self.cancel(job.id, store) }
    func again(_ id: JobID, _ capacity: QueueCapacity) async throws -> UpdateOutcome {
      try await store.update(id, within: capacity) { $0.fetchAgain(at: .at(9), from: .regular) }
    }
    #expect(try await again(batch[0].id, 1) == .queueFull)
    #expect(try await again(batch[0].id, QueueCapacity(9, ofOwner: 1)) == .queueFull)
    #expect(try await store.job(batch[0].id)?.phase == .cancelled)
    #expect(try await again(batch[2].id, 1) == .updated(batch[2]), "it has a slot already")
    guard case .updated(let queued) = try await again(batch[0].id, 2) else {
      Issue.record("there was a free slot")
      return
    }
    #expect(queued.phase == .queued)
    #expect(try await store.job(queued.id) == queued)
    #expect(try await again(batch[1].id, 2) == .queueFull)
    #expect(try await again(JobID(at: .at(1)), 2) == .unknown)
    try await store.audit()
    await store.close()
  }

  private static func cancel(_ id: JobID, _ store: StoreUnderTest) async throws {
    _ = try await store.update(id, under: nil) { $0.cancel(at: .at(5), keptFor: .seconds(60)) }
  }

  @Test(
    "concurrent requests to queue jobs again get no more than the free slots",
    arguments: StoreAdapter.allCases)
  func placesAtOnce(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = (0..<20).map { Job.sample($0) }
    _ = try await store.submit(batch, key: nil, capacity: 20)
    for job in batch { try await Self.cancel(job.id, store) }
    let refused = try await withThrowingTaskGroup(of: UpdateOutcome.self) { group in
      for job in batch {
        group.addTask {
          try await store.update(job.id, within: 3) { $0.fetchAgain(at: .at(9), from: .regular) }
        }
      }
      var refused = 0
      for try await outcome in group where outcome == .queueFull { refused += 1 }
      return refused
    }
    #expect(refused == 17)
    #expect(try await store.counts().jobs[.queued] == 3)
    try await store.audit()
    await store.close()
  }

  @Test(
    "a removed job is gone, and a second removal finds nothing", arguments: StoreAdapter.allCases)
  func removed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1, tags: ["t"])
    _ = try await jobs.store.submit(job)
    #expect(try await jobs.store.remove(job.id))
    #expect(try await !jobs.store.remove(job.id))
    #expect(try await jobs.store.job(job.id) == nil)
    #expect(try await jobs.store.claimOne() == nil)
    let counts = try await jobs.store.counts()
    #expect(counts.jobs == Self.none && counts.images == 0 && counts.imageBytes == 0)
    await jobs.store.close()
  }

  @Test(
    "expired jobs are deleted in portions, the earliest first",
    arguments: StoreAdapter.allCases)
  func expiry(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<4).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    for (index, job) in batch.dropLast().enumerated() {
      _ = try await jobs.store.update(job.id, under: nil) {
        $0.cancel(at: .at(10 - Int64(index)), keptFor: .milliseconds(100))
      }
    }
    #expect(try await jobs.store.expire(9, at: .at(107)) == [])
    #expect(try await jobs.store.expire(2, at: .at(110)) == [batch[2].id, batch[1].id])
    #expect(try await jobs.store.expire(2, at: .at(110)) == [batch[0].id])
    #expect(try await jobs.store.expire(2, at: .at(.max / 2)) == [])
    await jobs.store.close()
  }

  private static let none = Dictionary(uniqueKeysWithValues: Phase.allCases.map { ($0, 0) })
}
