import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Ending what is left of a stopped batch", .timeLimit(.minutes(5)))
struct BatchEndTests {
  @Test(
    "leaves nothing of a purged one in the cache, whenever the store fails or the service stops")
  func purged() async throws {
    let store = MemoryJobStore()
    try await Workshop.open(store: store) { shop in
      let batch = try await shop.engine.begin(NewBatch(), by: Workshop.me, key: nil).batch
      var lines = NewLines(after: 0)
      for line in 1...3 {
        let url = "http://a.example/\(line).png"
        shop.fetcher.answer(url, with: .pieces([ok + [UInt8(line)]], total: nil))
        let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
        lines.jobs.append(NewLines.Job(line: line, job: NewJob(submission: submission)))
      }
      lines.count = 3
      _ = try await shop.engine.add(lines, to: batch, by: Workshop.me)
      try await until { try await store.batch(batch.id)?.counts[.success] == 3 }
      #expect(try await store.cacheCounts().entries == 3)
      // It is asked in vain from now on.
      let failure = StoreError.unavailable(detail: "away")
      await store.fail(with: .init(repeating: failure, count: 1_000), of: .cache)
      try await shop.engine.purge(batch: batch.id, for: Workshop.me)
      try await until { try await store.counts().jobs[.success] == 0 }
    }
    #expect(try await store.cacheCounts().entries == 0)
  }

  @Test("keeps no other batch waiting, however long it takes")
  func others() async throws {
    let store = MemoryJobStore()
    let moment = Timestamp(milliseconds: 1)
    let idle = Batch(
      id: JobID(at: moment), owner: .anonymous, retention: .seconds(60), createdAt: moment)
    _ = try await store.open(idle, key: nil)
    await store.hold(.endStopped)
    try await Workshop.open(store: store) { shop in
      let held: Void? = try? await until { await store.heldCalls > 0 }
      let tidied: Void? = try? await until { try await store.batch(idle.id)?.state != .receiving }
      #expect(held != nil && tidied != nil)
      // Else it would never stop.
      await store.letGo()
    }
  }
}
