import Foundation
import Jobs
import TestSupport
import Testing

@testable import SQL

@Suite("Cancelled reads", .timeLimit(.minutes(15)))
struct CancelledReadTests {
  @Test("a long read that is cancelled while it waits is skipped, and other reads are not")
  func left() async throws {
    let jobs = try OpenJobs { $0.readers = 1 }
    let store = jobs.store.sql
    let job = Job.sample(1)
    _ = try await jobs.store.submit(job)
    let gate = DispatchSemaphore(value: 0)
    let (begun, note) = AsyncStream<Void>.makeStream()
    let holder = Task {
      try await store.read { _ in
        note.yield()
        gate.wait()
      }
    }
    for await _ in begun { break }
    let list = Task { try await store.jobs(JobQuery(owner: nil, now: .at(0), limit: 9)) }
    let results = Task {
      try await store.results(ResultQuery(JobID(at: .at(5)), after: 0, through: 1))
    }
    let single = Task { try await store.job(job.id) }
    let waiting = Task { try await store.jobs(JobQuery(owner: nil, now: .at(0), limit: 9)) }
    list.cancel()
    results.cancel()
    single.cancel()
    gate.signal()
    try await holder.value
    await #expect(throws: StoreError.self) { try await list.value }
    await #expect(throws: StoreError.self) { try await results.value }
    #expect(try await single.value?.id == job.id)
    #expect(try await waiting.value.jobs.map(\.id) == [job.id])
    await jobs.store.close()
  }
}
