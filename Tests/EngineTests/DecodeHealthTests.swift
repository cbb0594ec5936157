import Jobs
import TestSupport
import Testing

@testable import Engine

@Suite("Checking that images can be decoded", .timeLimit(.minutes(15)))
struct DecodeHealthTests {
  private static func quick(_ configuration: inout JobEngine.Configuration) {
    configuration.canary.interval = .milliseconds(5)
    configuration.canary.quiet = .milliseconds(20)
    configuration.canary.image = ok
  }

  private static func until(_ condition: () -> Bool) async throws {
    let deadline = ContinuousClock.now + patience
    while !condition() {
      try #require(ContinuousClock.now < deadline, "waited too long")
      try await Task.sleep(for: .milliseconds(2))
    }
  }

  @Test("a canary is decoded while there are no jobs, and the service stays ready")
  func canary() async throws {
    try await Workshop.open(Self.quick) { shop in
      try await Self.until { shop.codec.begun >= 3 }
      #expect(shop.engine.state == .ready)
    }
  }

  @Test("no canary is decoded while jobs are")
  func quiet() async throws {
    try await Workshop.open { configuration in
      Self.quick(&configuration)
      configuration.canary.quiet = .seconds(60)
    } _: { shop in
      shop.fetcher.answer("http://a.example/", with: .pieces([ok], total: ok.count))
      _ = try await shop.finished(shop.submit("http://a.example/"))
      try await Task.sleep(for: .milliseconds(50))
      #expect(shop.codec.begun == 1)
    }
  }

  @Test(
    "the service is not ready while decoding fails, still accepts jobs and logs each change once")
  func failing() async throws {
    let lines = LogLines()
    try await Workshop.open(log: lines.logger, Self.quick) { shop in
      shop.codec.crashes(true)
      try await Self.until { shop.engine.state == .stuck }
      _ = try await shop.submit("http://a.example/")
      shop.codec.crashes(false)
      try await Self.until { shop.engine.state == .ready }
    }
    let lost = "images can't be decoded, /readyz fails until they can"
    #expect(lines.count(lost) == 1 && lines.count("images are decoded again") == 1)
  }

  @Test("the service is not ready while the canary hangs, and can still stop")
  func hanging() async throws {
    var codec: FakeCodec?
    try await Workshop.open { configuration in
      Self.quick(&configuration)
      configuration.canary.timeout = .milliseconds(30)
    } _: { shop in
      codec = shop.codec
      shop.codec.hangs(true)
      try await Self.until { shop.engine.state == .stuck }
      let begun = shop.codec.begun
      try await Task.sleep(for: .milliseconds(100))
      #expect(shop.codec.begun == begun, "only one canary runs at a time")
    }
    codec?.hangs(false)
  }

  @Test("a stuck worker is counted, and logged once")
  func stuck() async throws {
    let lines = LogLines()
    try await Workshop.open(log: lines.logger) { configuration in
      Self.quick(&configuration)
      configuration.lease = .seconds(3_600)
    } _: { shop in
      shop.fetcher.answer("http://a.example/", with: .hangs(after: ok))
      let id = try await shop.submit("http://a.example/")
      _ = try await shop.reached(.loading, id)
      #expect(shop.engine.upkeep.health.stuck(at: shop.clock.now).isEmpty)
      shop.clock.advance(by: .seconds(301))
      try await Self.until { lines.count("a worker is stuck") == 1 }
      let stuck = shop.engine.upkeep.health.stuck(at: shop.clock.now)
      #expect(stuck.map(\.leader.id) == [id])
      try await Task.sleep(for: .milliseconds(50))
      #expect(lines.count("a worker is stuck") == 1)
    }
  }

  @Test("a stuck background load is counted like that of a worker")
  func stuckInBackground() async throws {
    try await Workshop.open {
      Self.quick(&$0)
      $0.lease = .seconds(3_600)
      $0.cache.defaultTTL = .seconds(60)
    } _: { shop in
      shop.fetcher.answer(
        "http://a.example/", with: .pieces([ok], total: ok.count), .hangs(after: ok))
      let job = try await shop.finished(shop.submit("http://a.example/"))
      shop.clock.advance(by: .seconds(61))
      async let freshening: Void = shop.engine.refresher.refresh(job)
      try await Self.until { shop.engine.loading.loads.count == 1 }
      #expect(shop.engine.upkeep.health.stuck(at: shop.clock.now).isEmpty)
      shop.clock.advance(by: .seconds(301))
      #expect(shop.engine.upkeep.health.stuck(at: shop.clock.now).count == 1)
      shop.engine.loading.loads.stop()
      await freshening
    }
  }
}
