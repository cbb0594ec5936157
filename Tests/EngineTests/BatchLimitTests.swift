import Jobs
import TestSupport
import Testing

@testable import Engine

@Suite("What one owner may have under way", .timeLimit(.minutes(5)))
struct BatchLimitTests {
  @Test("so many batches that are not over, and one more once one is")
  func batches() async throws {
    try await Workshop.open({ $0.maxBatches = 2 }) { shop in
      let first = try await shop.engine.begin(NewBatch(isOpen: true), by: Workshop.me, key: nil)
      _ = try await shop.engine.begin(NewBatch(isOpen: true), by: Workshop.me, key: nil)
      await #expect(throws: JobsError.tooManyBatches) {
        try await shop.engine.begin(NewBatch(), by: Workshop.me, key: nil)
      }
      _ = try await shop.engine.close(first.batch.id, for: Workshop.me)
      _ = try await shop.engine.begin(NewBatch(), by: Workshop.me, key: nil)
    }
  }

  @Test("so many messages that wait; what asks for none is taken all the same")
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
      // Nothing waits at first; what its end tells then does.
      let told = try await shop.engine.submit([new(nil)], by: Workshop.me, key: nil)
      #expect(told.count == 1)
      var job = Job(
        new(webhook), id: JobID(at: Timestamp(milliseconds: 1)), owner: Workshop.me.owner,
        createdAt: Timestamp(milliseconds: 1))
      _ = job.cancel(at: Timestamp(milliseconds: 1), keptFor: .seconds(60))
      await shop.store.tell(WebhookMessage(endOf: job, after: .queued))
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.submit([new(webhook)], by: Workshop.me, key: nil)
      }
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.begin(
          NewBatch(isOpen: true, webhook: webhook), by: Workshop.me, key: nil)
      }
      _ = try await shop.engine.submit([new(nil)], by: Workshop.me, key: nil)
      let batch = try await shop.engine.begin(
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

  @Test("however many messages wait, what a key came with before; and nothing new by one")
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
      // Past the engine, which would remember for a while that there was room.
      let first = job()
      #expect(try await shop.store.submit([first], key: key("job"), capacity: .max) == .accepted)
      let list = Batch(
        id: JobID(at: moment), owner: Workshop.me.owner, key: "list", retention: .seconds(60),
        webhook: webhook, createdAt: moment)
      #expect(try await shop.store.open(list, key: key("list")) == .opened)
      var ended = job()
      _ = ended.cancel(at: moment, keptFor: .seconds(60))
      await shop.store.tell(WebhookMessage(endOf: ended, after: .queued))

      let again = try await shop.engine.submit([new], by: Workshop.me, key: key("job"))
      #expect(again.map(\.id) == [first.id])
      let newList = NewBatch(webhook: webhook)
      let same = try await shop.engine.begin(newList, by: Workshop.me, key: key("list"))
      #expect(same.batch.id == list.id)
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.submit([new], by: Workshop.me, key: key("new"))
      }
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.begin(newList, by: Workshop.me, key: key("new"))
      }
    }
  }
}
