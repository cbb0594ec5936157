import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("A store whose answers are lost", .timeLimit(.minutes(5)))
struct LostAnswerTests {
  private let url = "http://a.example/x.png"
  private let failure = StoreError.unavailable(detail: "late")

  @Test("has jobs begun whose submission is repeated, of which nobody was told at first")
  func submitted() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let new = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      let key = IdempotencyKey(
        owner: Workshop.me.owner, key: "k", fingerprint: MemoryImageStore.digest(of: ok))
      try await until { shop.engine.dispatcher.isEmpty }
      await shop.store.fail(with: [failure], of: .submitAnswer)
      await #expect(throws: JobsError.store(failure)) {
        try await shop.engine.submit([new], by: Workshop.me, key: key)
      }
      let id = try await shop.engine.submit([new], by: Workshop.me, key: key)[0].id
      #expect(try await shop.finished(id).phase == .success)
    }
  }

  @Test("has a job's end told as any other, once")
  func completed() async throws {
    let lines = LogLines()
    // The lease is not what finds it.
    try await Workshop.open(log: lines.logger, { $0.lease = .seconds(3_600) }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      await shop.store.fail(with: [failure, failure], of: .completeAnswer)
      let id = try await shop.submit(url)
      #expect(try await shop.finished(id).phase == .success)
      #expect(lines.ends(of: id) == ["success"])
      #expect(lines.count("the store takes no result") == 2)
    }
  }

  @Test("has a job shown as it is that was cancelled without a word, once its load ends")
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
