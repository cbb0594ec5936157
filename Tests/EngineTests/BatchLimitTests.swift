import Jobs
import SQL
import TestSupport
import Testing

@testable import Engine

@Suite("Limits for one owner", .timeLimit(.minutes(15)))
struct BatchLimitTests {
  @Test("an owner can begin another batch once one of its batches is over")
  func batches() async throws {
    try await Workshop.open({ $0.maxBatches = 2 }) { shop in
      let first = try await shop.engine.createBatch(
        NewBatch(isOpen: true), by: Workshop.me, key: nil)
      _ = try await shop.engine.createBatch(NewBatch(isOpen: true), by: Workshop.me, key: nil)
      await #expect(throws: JobsError.tooManyBatches) {
        try await shop.engine.createBatch(NewBatch(), by: Workshop.me, key: nil)
      }
      _ = try await shop.engine.close(first.batch.id, for: Workshop.me)
      // The batch counts until the next upkeep of the batches.
      try await until {
        do { _ = try await shop.engine.createBatch(NewBatch(), by: Workshop.me, key: nil) } catch {
          #expect(error as? JobsError == .tooManyBatches)
          return false
        }
        return true
      }
    }
  }

  @Test("jobs and batches with a webhook are refused if too many messages are undelivered")
  func messages() async throws {
    try await Workshop.open({ $0.maxWaitingMessages = 1 }) { shop in
      let webhook = Webhook(url: SourceURL("https://a.example/")!, events: WebhookEvent.jobEnds)
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      func new(_ webhook: Webhook?) -> NewJob {
        var submission = Submission(
          source: .url(SourceURL("http://busy.example/")!, lowData: nil))
        submission.webhook = webhook
        return NewJob(submission: submission)
      }
      // No message waits yet. The message of the next job does.
      let submitted = try await shop.engine.submit([new(nil)], by: Workshop.me, key: nil)
      #expect(submitted.count == 1)
      var job = Job(
        new(webhook), id: JobID(at: Timestamp(milliseconds: 1)), owner: Workshop.me.owner,
        createdAt: Timestamp(milliseconds: 1))
      _ = job.cancel(at: Timestamp(milliseconds: 1), keptFor: .seconds(60))
      try await shop.store.enqueueMessages([#require(WebhookMessage(endOf: job, after: .queued))]
      )
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.submit([new(webhook)], by: Workshop.me, key: nil)
      }
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.createBatch(
          NewBatch(isOpen: true, webhook: webhook), by: Workshop.me, key: nil)
      }
      _ = try await shop.engine.submit([new(nil)], by: Workshop.me, key: nil)
      let batch = try await shop.engine.createBatch(
        NewBatch(isOpen: true), by: Workshop.me, key: nil
      ).batch
      var lines = NewLines(after: 0)
      lines.count = 1
      lines.jobs = [NewLines.Job(line: 1, job: new(webhook))]
      let telling = lines
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.add(telling, to: batch, by: Workshop.me)
      }
    }
  }

  @Test(
    "a repeated request is answered although too many messages are undelivered, a new one is not")
  func repeatedMessages() async throws {
    try await Workshop.open({ $0.maxWaitingMessages = 1 }) { shop in
      let webhook = Webhook(url: SourceURL("https://a.example/")!, events: WebhookEvent.jobEnds)
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      var submission = Submission(source: .url(SourceURL("http://busy.example/")!, lowData: nil))
      submission.webhook = webhook
      let (new, moment) = (NewJob(submission: submission), shop.clock.now)
      func key(_ name: String) -> IdempotencyKey {
        IdempotencyKey(
          owner: Workshop.me.owner, key: name, fingerprint: MemoryImageStore.digest(of: [1]))
      }
      func job() -> Job {
        Job(new, id: JobID(at: moment), owner: Workshop.me.owner, createdAt: moment)
      }
      // Stored directly: the engine would remember that there was room for messages.
      let first = job()
      #expect(try await shop.store.submit([first], key: key("job"), capacity: .max) == .accepted)
      let list = Batch(
        id: JobID(at: moment), owner: Workshop.me.owner, key: "list", retention: .seconds(60),
        webhook: webhook, createdAt: moment)
      #expect(try await shop.store.open(list, key: key("list")) == .opened)
      var ended = job()
      _ = ended.cancel(at: moment, keptFor: .seconds(60))
      try await shop.store.enqueueMessages([
        #require(WebhookMessage(endOf: ended, after: .queued))
      ])

      let again = try await shop.engine.submit([new], by: Workshop.me, key: key("job"))
      #expect(again.map(\.id) == [first.id])
      let newList = NewBatch(webhook: webhook)
      let same = try await shop.engine.createBatch(newList, by: Workshop.me, key: key("list"))
      #expect(same.batch.id == list.id)
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.submit([new], by: Workshop.me, key: key("new"))
      }
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.createBatch(newList, by: Workshop.me, key: key("new"))
      }
    }
  }
}
