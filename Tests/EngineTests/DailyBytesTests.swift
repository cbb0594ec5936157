import Jobs
import Logging
import SQL
import TestSupport
import Testing
import Waiting

@testable import Engine

@Suite("Bytes fetched per day")
struct DailyBytesTests {
  private static let noon = Timestamp(day: 20_000) + .seconds(43_200)
  private let log = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
  private let caller = Caller(
    owner: Owner("anna"), isAdmin: false, limits: OwnerLimits(maxBytesPerDay: 100))

  @Test("an owner that spent its bytes is refused until the next day, others are not")
  func spent() throws {
    let bytes = DailyBytes(of: [caller.owner])
    let other = Caller(owner: Owner("ben"), isAdmin: false)
    bytes.add(99, for: caller.owner, at: Self.noon)
    bytes.add(1_000, for: other.owner, at: Self.noon)
    try bytes.check(caller, at: Self.noon)
    bytes.add(1, for: caller.owner, at: Self.noon)
    #expect(throws: JobsError.dailyBytesExceeded(for: .seconds(43_200))) {
      try bytes.check(caller, at: Self.noon)
    }
    try bytes.check(other, at: Self.noon)
    try bytes.check(caller, at: Self.noon + .seconds(43_200))
  }

  @Test("bytes are summed over all instances and kept over a restart")
  func shared() async throws {
    let store = MemoryJobStore()
    let (here, there) = (DailyBytes(of: [caller.owner]), DailyBytes(of: []))
    // An owner whose limit was unknown is counted from its first check on.
    try there.check(caller, at: Self.noon)
    there.add(60, for: caller.owner, at: Self.noon)
    here.add(40, for: caller.owner, at: Self.noon)
    try here.check(caller, at: Self.noon)
    await there.save(in: store, at: Self.noon, log)
    await here.save(in: store, at: Self.noon, log)
    #expect(throws: JobsError.self) { try here.check(caller, at: Self.noon) }
    try there.check(caller, at: Self.noon)
    await there.save(in: store, at: Self.noon, log)
    #expect(throws: JobsError.self) { try there.check(caller, at: Self.noon) }
    let next = DailyBytes(of: [caller.owner])
    await next.save(in: store, at: Self.noon, log)
    #expect(throws: JobsError.self) { try next.check(caller, at: Self.noon) }
  }

  @Test("bytes that the store did not accept are reported again")
  func failing() async throws {
    let store = MemoryJobStore()
    let bytes = DailyBytes(of: [caller.owner])
    bytes.add(100, for: caller.owner, at: Self.noon)
    await store.calls.fail(with: [.unavailable(detail: "a test")])
    await bytes.save(in: store, at: Self.noon, log)
    #expect(throws: JobsError.self) { try bytes.check(caller, at: Self.noon) }
    await bytes.save(in: store, at: Self.noon, log)
    #expect(try await store.addBytes([caller.owner: 0], on: 20_000) == [caller.owner: 100])
  }

  @Test("only fetched bytes count, not cached ones")
  func counted() async throws {
    try await Workshop.open { shop in
      let me = Caller(
        owner: Owner("me"), isAdmin: false, limits: OwnerLimits(maxBytesPerDay: 1))
      let url = "https://a.example/1"
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let new = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      let id = try await shop.engine.submit([new], by: me, key: nil)[0].id
      #expect(try await shop.finished(id).phase == .success)
      // The cache could answer, but the day's bytes are spent.
      await #expect(throws: JobsError.self) {
        _ = try await shop.engine.submit([new], by: me, key: nil)
      }
    }
  }

  @Test("a shared transfer counts once for each owner")
  func sharedTransfer() async throws {
    try await Workshop.open { shop in
      let url = "https://a.example/1"
      let gate = Latch()
      shop.fetcher.answer(
        url,
        with: .waits(
          after: Array(ok.prefix(1)), { await gate.wait() }, then: Array(ok.dropFirst())))
      let new = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      func caller(_ name: String, _ limit: Int) -> Caller {
        Caller(owner: Owner(name), isAdmin: false, limits: OwnerLimits(maxBytesPerDay: limit))
      }
      let callers = [
        caller("anna", ok.count), caller("ben", ok.count), caller("carl", ok.count + 1),
      ]
      var ids: [JobID] = []
      for caller in callers + callers {
        ids.append(try await shop.engine.submit([new], by: caller, key: nil)[0].id)
      }
      while try await shop.store.counts().jobs[.loading] != ids.count { await Task.yield() }
      gate.open()
      for (id, caller) in zip(ids, callers + callers) {
        let job = try await shop.engine.wait(
          id, for: caller, until: .finished, atMost: .seconds(10)
        ).job
        #expect(job.phase == .success)
      }
      #expect(shop.fetcher.requests.count == 1)
      for caller in callers[..<2] {
        await #expect(throws: JobsError.self) {
          _ = try await shop.engine.submit([new], by: caller, key: nil)
        }
      }
      // Each owner was charged once, although two of its jobs shared the transfer.
      _ = try await shop.engine.submit([new], by: callers[2], key: nil)
    }
  }

  @Test("a spent limit still answers repeated requests, but refuses new ones with a key")
  func repeated() async throws {
    try await Workshop.open { shop in
      let me = Caller(
        owner: Workshop.me.owner, isAdmin: false, limits: OwnerLimits(maxBytesPerDay: 1))
      func key(_ name: String, of request: UInt8 = 1) -> IdempotencyKey {
        IdempotencyKey(
          owner: me.owner, key: name, fingerprint: MemoryImageStore.digest(of: [request]))
      }
      let url = "https://a.example/1"
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let new = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      let list = try await shop.engine.createBatch(NewBatch(), by: me, key: key("list")).batch
      let id = try await shop.engine.submit([new], by: me, key: key("job"))[0].id
      #expect(try await shop.finished(id).phase == .success)
      #expect(try await shop.engine.submit([new], by: me, key: key("job")).map(\.id) == [id])
      let again = try await shop.engine.createBatch(NewBatch(), by: me, key: key("list"))
      #expect(again.batch.id == list.id)
      await #expect(throws: JobsError.keyReused) {
        try await shop.engine.submit([new], by: me, key: key("job", of: 2))
      }
      let spent = JobsError.dailyBytesExceeded(
        for: Timestamp(day: shop.clock.now.day + 1) - shop.clock.now)
      // A cached answer is refused too.
      await #expect(throws: spent) {
        try await shop.engine.submit([new], by: me, key: key("new"))
      }
      await #expect(throws: spent) {
        try await shop.engine.createBatch(NewBatch(), by: me, key: key("new"))
      }
      #expect(try await shop.store.counts().jobs[.success] == 1)
    }
  }
}
