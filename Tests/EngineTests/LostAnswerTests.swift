import SQL
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("A store whose answers are lost", .timeLimit(.minutes(15)))
struct LostAnswerTests {
  private let url = "http://a.example/x.png"
  private let failure = StoreError.unavailable(detail: "late")

  @Test("jobs whose submission was stored but not answered start when it is repeated")
  func submitted() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let new = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      let key = IdempotencyKey(
        owner: Workshop.me.owner, key: "k", fingerprint: MemoryImageStore.digest(of: ok))
      try await until { shop.engine.queue.dispatcher.isEmpty }
      await shop.store.calls.fail(with: [failure], of: .submit.answer)
      await #expect(throws: JobsError.store(failure)) {
        try await shop.engine.submit([new], by: Workshop.me, key: key)
      }
      let id = try await shop.engine.submit([new], by: Workshop.me, key: key)[0].id
      #expect(try await shop.finished(id).phase == .success)
    }
  }

  @Test("a job whose end was stored but not answered is published once")
  func completed() async throws {
    let lines = LogLines()
    // With a long lease, no renewal can find the lost job.
    try await Workshop.open(log: lines.logger, { $0.lease = .seconds(3_600) }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      await shop.store.calls.fail(with: [failure, failure], of: .complete.answer)
      let id = try await shop.submit(url)
      #expect(try await shop.finished(id).phase == .success)
      #expect(lines.ends(of: id) == ["success"])
      #expect(lines.count("failed to save a job's result, retrying") == 2)
    }
  }

  @Test("a job that was cancelled without an event is shown as cancelled once its load ends")
  func cancelled() async throws {
    try await Workshop.open({ $0.lease = .seconds(3_600) }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      shop.codec.hangs(true)
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      let moment = shop.clock.now
      _ = try await shop.store.update(id, under: nil) {
        $0.cancel(at: moment, keptFor: .seconds(60))
      }
      shop.codec.hangs(false)
      #expect(try await shop.finished(id).phase == .cancelled)
    }
  }
}
