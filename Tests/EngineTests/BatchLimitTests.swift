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
}
