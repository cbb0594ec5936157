import Jobs
import TestSupport
import Testing

@testable import Engine

@Suite("What is loaded though no job waits", .timeLimit(.minutes(5)))
struct BackgroundLoadTests {
  private let url = "http://a.example/x"
  private let low = "http://a.example/low"

  private var source: Source { .url(SourceURL(url)!, lowData: SourceURL(low)) }

  @Test("is the low-data image where that was given out stale, not the regular one")
  func target() async throws {
    try await Workshop.open({
      ($0.isConstrained, $0.cache.defaultTTL) = (true, .seconds(60))
    }) { shop in
      shop.fetcher.answer(low, with: .pieces([ok], total: ok.count))
      let job = try await shop.finished(shop.submit(url) { $0.source = source })
      #expect(job.image?.variant == .lowData)
      shop.clock.advance(by: .seconds(61))
      for _ in 0..<2 { await shop.engine.freshener.freshen(job) }
      #expect(shop.fetcher.requests.map(\.url.string) == [low, low])
    }
  }

  @Test("takes no low-data image's place where it is more than the job takes, or not what it named")
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
      _ = engine.network.set(false)
      let replacer = LowDataReplacer(
        loader: engine.backgroundLoader, store: shop.store, network: engine.network,
        publisher: engine.publisher, makers: engine.makers, log: engine.log)
      await replacer.replaceAll()
      var variants: [SourceVariant?] = []
      for id in ids {
        variants.append(try await engine.job(id, for: Workshop.me).job.image?.variant)
      }
      #expect(variants == [.lowData, .lowData, .regular])
    }
  }
}
