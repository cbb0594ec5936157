import Jobs
import Synchronization
import TestSupport
import Testing

@testable import Engine

@Suite("Background loads", .timeLimit(.minutes(15)))
struct BackgroundLoadTests {
  private let url = "http://a.example/x"
  private let low = "http://a.example/low"

  private var source: Source { .url(SourceURL(url)!, lowData: SourceURL(low)) }

  @Test("the low-data image is revalidated if it was served stale")
  func target() async throws {
    try await Workshop.open({
      ($0.isConstrained, $0.cache.defaultTTL) = (true, .seconds(60))
    }) { shop in
      shop.fetcher.answer(low, with: .pieces([ok], total: ok.count))
      let job = try await shop.finished(shop.submit(url) { $0.source = source })
      #expect(job.image?.variant == .lowData)
      shop.clock.advance(by: .seconds(61))
      for _ in 0..<2 { await shop.engine.refresher.refresh(job) }
      #expect(shop.fetcher.requests.map(\.url.string) == [low, low])
    }
  }

  @Test("one owner's revalidations at hanging origins leave room for other owners")
  func hostage() async throws {
    let other = Caller(owner: Owner("other"), isAdmin: false)
    try await Workshop.open({ $0.workers = 64 }) { shop in
      let fields = [
        HeaderField(name: "Cache-Control", value: "max-age=1, stale-while-revalidate=86400")
      ]
      func request(_ url: String, by caller: Caller) async throws {
        let new = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
        let id = try await shop.engine.submit([new], by: caller, key: nil)[0].id
        let job = try await shop.engine.wait(id, for: caller, until: .finished, atMost: .seconds(9))
        #expect(job.job.phase == .success)
      }
      func asked(_ prefix: String) -> Int {
        shop.fetcher.requests.count { $0.url.host.hasPrefix(prefix) }
      }
      let hanging = (0..<20).map { "http://hangs\($0).example/" }
      let quick = (0..<3).map { "http://quick\($0).example/" }
      for url in hanging {
        shop.fetcher.answer(url, with: .responds(200, fields, ok), .hangs(after: []))
      }
      for url in quick { shop.fetcher.answer(url, with: .responds(200, fields, ok)) }
      for url in hanging { try await request(url, by: Workshop.me) }
      for url in quick { try await request(url, by: other) }
      shop.clock.advance(by: .seconds(5))
      let most = BackgroundQueue.maxRefreshes - BackgroundQueue.maxRefreshes / 4
      for url in hanging { try await request(url, by: Workshop.me) }
      try await until { asked("hangs") == hanging.count + most }
      for url in quick { try await request(url, by: other) }
      try await until { asked("quick") == 2 * quick.count }
      #expect(asked("hangs") == hanging.count + most)
    }
  }

  @Test("a regular image that exceeds the job's limits does not replace the low-data one")
  func limits() async throws {
    try await Workshop.open({ $0.isConstrained = true }) { shop in
      shop.fetcher.answer(low, with: .pieces([ok], total: ok.count))
      shop.fetcher.answer(url, with: .pieces([ok + [1]], total: ok.count + 1))
      let ids = [
        try await shop.submit(url) { ($0.source, $0.maxBytes) = (source, ok.count) },
        try await shop.submit(url) {
          ($0.source, $0.integrity) = (source, MemoryImageStore.digest(of: ok))
        },
        try await shop.submit(url) { $0.source = source },
      ]
      for id in ids { #expect(try await shop.finished(id).image?.variant == .lowData) }
      let engine = shop.engine
      _ = engine.queue.network.set(false)
      await engine.lowDataReplacer().replaceAll()
      var variants: [SourceVariant?] = []
      for id in ids {
        variants.append(try await engine.job(id, for: Workshop.me).job.image?.variant)
      }
      #expect(variants == [.lowData, .lowData, .regular])
    }
  }

  @Test("the regular image is tried again later if its origin failed for a time only")
  func later() async throws {
    try await Workshop.open({ $0.isConstrained = true }) { shop in
      let gone = "http://a.example/gone"
      shop.fetcher.answer(low, with: .pieces([ok], total: ok.count))
      shop.fetcher.answer(
        url, with: .fails(.originStatus(503, retryAfter: 0.05)), .fails(.stalled(seconds: 1)),
        .pieces([ok + [1]], total: ok.count + 1))
      let late = try await shop.submit(url) { $0.source = source }
      let never = try await shop.submit(gone) {
        $0.source = .url(SourceURL(gone)!, lowData: SourceURL(low))
      }
      for id in [late, never] {
        #expect(try await shop.finished(id).image?.variant == .lowData)
      }
      let engine = shop.engine
      _ = engine.queue.network.set(false)
      var retry = RetryPolicy()
      retry.initialBackoff = .milliseconds(1)
      let queue = BackgroundQueue { shop.clock.now }
      let replacer = engine.lowDataReplacer(retry: retry)
      async let running: Void = replacer.run(for: queue)
      let began = ContinuousClock.now
      queue.replaceLowData()
      try await until { engine.peek(late, for: Workshop.me)?.job.image?.variant == .regular }
      #expect(began.duration(to: .now) >= .milliseconds(50))
      queue.stop()
      await running
      let asked = shop.fetcher.requests.map(\.url.string)
      #expect(asked.filter { $0 == url }.count == 3 && asked.filter { $0 == gone }.count == 1)
      #expect(engine.peek(never, for: Workshop.me)?.job.image?.variant == .lowData)
    }
  }

  @Test("regular images that hang delay only the other jobs of their owner")
  func hanging() async throws {
    try await Workshop.open({ $0.isConstrained = true }) { shop in
      shop.fetcher.answer(low, with: .pieces([ok], total: ok.count))
      shop.fetcher.answer(url, with: .pieces([ok + [1]], total: ok.count + 1))
      func submit(_ regular: String, by owner: String) async throws -> JobID {
        let source = Source.url(SourceURL(regular)!, lowData: SourceURL(low))
        let new = NewJob(submission: Submission(source: source), priority: .normal)
        let caller = Caller(owner: Owner(owner), isAdmin: false)
        return try await shop.engine.submit([new], by: caller, key: nil)[0].id
      }
      let count = LowDataReplacer.maxOfOwner + 10
      var ids: [JobID] = []
      for number in 0..<count {
        let hanging = "http://hangs\(number).example/"
        shop.fetcher.answer(hanging, with: .hangs(after: []))
        ids.append(try await submit(hanging, by: "me"))
      }
      for id in ids { #expect(try await shop.finished(id).image?.variant == .lowData) }
      let other = Caller(owner: Owner("other"), isAdmin: false)
      let last = try await submit(url, by: "other")
      _ = try await shop.engine.wait(last, for: other, until: .finished, atMost: .seconds(10))
      _ = try await shop.engine.setConstrained(false)
      try await until {
        shop.engine.peek(last, for: other)?.job.image?.variant == .regular
      }
      let hanging = shop.fetcher.requests.count { $0.url.string.contains("hangs") }
      #expect(hanging == LowDataReplacer.maxOfOwner)
    }
  }

  @Test("a regular image is delivered again, and each delivery and request is recorded")
  func delivered() async throws {
    let receiver = Receiver()
    try await Workshop.open(destinations: receiver, { $0.isConstrained = true }) { shop in
      shop.fetcher.answer(low, with: .pieces([ok], total: ok.count))
      shop.fetcher.answer(
        url, with: .fails(.stalled(seconds: 1)), .pieces([ok + [1]], total: ok.count + 1))
      let id = try await shop.submit(url) {
        $0.source = source
        $0.deliveries = ["a", "b"].map { path in
          let url = SourceURL("http://receiver.example/\(path)")!
          return DeliveryRequest(.put(url, headers: []), variant: nil)
        }
      }
      _ = try await shop.finished(id)
      let engine = shop.engine
      _ = engine.queue.network.set(false)
      let replacer = engine.lowDataReplacer()
      let (busy, expired) = (
        DeliveryError.refused(to: "b", status: 503, code: nil),
        DeliveryError.refused(to: "a", status: 403, code: nil)
      )
      let (old, new) = (ok.count, ok.count + 1)
      let rounds: [([DeliveryError?], Bool, SourceVariant, [Int])] = [
        ([], true, .lowData, [old, old]), ([nil, busy], true, .lowData, [new, old]),
        ([expired], false, .lowData, [new, old]), ([], false, .regular, [new, new]),
      ]
      for (answers, isTriedAgain, variant, there) in rounds {
        receiver.answer(with: answers)
        let left = await replacer.replaceAll()
        #expect(left.contains(id) == isTriedAgain)
        let job = try await engine.job(id, for: Workshop.me).job
        #expect(job.phase == .success && job.image?.variant == variant)
        #expect(job.deliveries.map(\.bytes) == there)
        #expect(job.attempts == shop.fetcher.requests.count)
      }
      #expect(receiver.accepted == [old, old, new, new, new])
    }
  }
}

/// Accepts deliveries, except those that it is to answer with an error.
private final class Receiver: ImageDestinations {
  private let state = Mutex((answers: [DeliveryError?](), accepted: [Int]()))

  /// The sizes of the accepted deliveries, in order.
  var accepted: [Int] { state.withLock { $0.accepted } }

  /// The answers to the next deliveries; after them everything is accepted.
  func answer(with answers: [DeliveryError?]) { state.withLock { $0.answers = answers } }

  func deliver(_ parcel: DeliveryUpload) async throws(DeliveryError) -> String? {
    let error = state.withLock { state -> DeliveryError? in
      guard !state.answers.isEmpty, let error = state.answers.removeFirst() else {
        state.accepted.append(parcel.content.count)
        return nil
      }
      return error
    }
    if let error { throw error }
    return nil
  }
}
