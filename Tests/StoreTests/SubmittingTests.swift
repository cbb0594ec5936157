import Foundation
import Jobs
import Store
import Testing

@Suite("Submitting jobs")
struct SubmittingTests {
  @Test("a submitted job is there as it was given, also after reopening")
  func kept() async throws {
    let jobs = try OpenJobs()
    let job = Job.sample(1, tags: ["a", "nul \u{0} inside", "ü"])
    #expect(try await jobs.store.submit(job) == .accepted)
    #expect(try await jobs.store.job(job.id) == job)
    let reopened = try await jobs.reopened()
    #expect(try await reopened.job(job.id) == job)
    #expect(try await reopened.job(JobID(at: .at(1))) == nil)
    #expect(try await reopened.counts().jobs[.queued] == 1)
    await reopened.close()
  }

  @Test("a batch over the capacity is refused whole, and one that fits is taken whole")
  func capacity() async throws {
    let jobs = try OpenJobs()
    let batch = (0..<5).map { Job.sample($0) }
    #expect(try await jobs.store.submit(batch, key: nil, capacity: 4) == .queueFull)
    #expect(try await jobs.store.counts().jobs[.queued] == 0)
    #expect(try await jobs.store.submit(batch, key: nil, capacity: 5) == .accepted)
    #expect(try await jobs.store.submit([.sample(9)], key: nil, capacity: 5) == .queueFull)
    _ = try await jobs.store.claimOne()
    #expect(try await jobs.store.submit([.sample(9)], key: nil, capacity: 5) == .accepted)
    await jobs.store.close()
  }

  @Test("a batch with a job that exists already changes nothing and fails alone")
  func duplicate() async throws {
    let jobs = try OpenJobs()
    let job = Job.sample(1)
    _ = try await jobs.store.submit(job)
    await #expect(throws: StoreError.self) {
      try await jobs.store.submit([.sample(2), job], key: nil, capacity: 10)
    }
    #expect(try await jobs.store.counts().jobs[.queued] == 1)
    #expect(try await jobs.store.submit(.sample(3)) == .accepted)
    await jobs.store.close()
  }

  @Test("the same key with the same request answers with the first jobs as they now are")
  func repeated() async throws {
    let jobs = try OpenJobs()
    let batch = (0..<3).map { Job.sample(10 - $0) }
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    #expect(try await jobs.store.submit(batch, key: key, capacity: 3) == .accepted)
    _ = try await jobs.store.claimOne()
    let now = try await batch.asyncMap { try await jobs.store.job($0.id) }
    #expect(now[0]?.phase == .loading)
    let again = try await jobs.store.submit([.sample(20)], key: key, capacity: 3)
    #expect(again == .repeated(now.compactMap(\.self)))
    let reopened = try await jobs.reopened()
    #expect(try await reopened.submit([.sample(20)], key: key, capacity: 3) == again)
    await reopened.close()
  }

  @Test("the same key with another request is refused; another owner's key is another one")
  func keyReused() async throws {
    let jobs = try OpenJobs()
    var key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    _ = try await jobs.store.submit([.sample(1)], key: key, capacity: 9)
    key.fingerprint = .sample(2)
    #expect(try await jobs.store.submit([.sample(2)], key: key, capacity: 9) == .keyReused)
    key.owner = Owner("bert")
    #expect(try await jobs.store.submit([.sample(2)], key: key, capacity: 9) == .accepted)
    await jobs.store.close()
  }

  @Test("a key that a full queue refused is not remembered")
  func refusedKey() async throws {
    let jobs = try OpenJobs()
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    #expect(try await jobs.store.submit([.sample(1)], key: key, capacity: 0) == .queueFull)
    #expect(try await jobs.store.submit([.sample(1)], key: key, capacity: 1) == .accepted)
    await jobs.store.close()
  }

  @Test("a key is forgotten with the first of its jobs", arguments: [true, false])
  func forgottenKey(byRemoval: Bool) async throws {
    let jobs = try OpenJobs()
    let batch = (0..<2).map { Job.sample($0) }
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    _ = try await jobs.store.submit(batch, key: key, capacity: 9)
    if byRemoval {
      #expect(try await jobs.store.remove(batch[1].id))
    } else {
      _ = try await jobs.store.update(batch[1].id, under: nil) {
        $0.cancel(at: .at(1), keptFor: .seconds(1))
      }
      #expect(try await jobs.store.expire(at: .at(1_001), count: 9) == [batch[1].id])
    }
    #expect(try await jobs.store.submit([.sample(5)], key: key, capacity: 9) == .accepted)
    #expect(try await jobs.store.job(batch[0].id) != nil)
    #expect(try await jobs.store.remove(batch[0].id))
    let repeated = try await jobs.store.submit([.sample(6)], key: key, capacity: 9)
    #expect(repeated != .accepted, "the second life of the key must outlive the first one's jobs")
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
