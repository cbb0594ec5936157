import TestSupport
import Testing

@Suite("An origin", .timeLimit(.minutes(15)))
struct OriginTests {
  private let png = Fixtures.smallPNG

  @Test("an origin has at most max_per_host transfers at once, and as many if there is work")
  func atOnce() async throws {
    try await withPipeline(["fetch.max_per_host": "3"]) { service, origin in
      let other = try ScriptedOrigin()
      defer { other.stop() }
      other.on("/x", .ok(png))
      let gate = Gate()
      for number in 0..<12 { origin.on("/\(number)", .held(image("\(number)"), by: gate)) }
      let ids = try await service.post(batch: (0..<12).map { ["url": origin.url("/\($0)")] })
      await poll { origin.unanswered == 3 }
      // Jobs that start after these have started by then.
      #expect(try await service.run(["url": other.url("/x")]).phase == "success")
      #expect(origin.requests.count == 3)
      gate.open()
      for job in try await service.outcomes(ids) { #expect(job.phase == "success") }
      #expect(origin.mostAtOnce == 3)
    }
  }

  @Test("all spellings of a host are the same origin")
  func spellings() async throws {
    try await withPipeline(["fetch.max_per_host": "2"]) { service, origin in
      let other = try ScriptedOrigin()
      defer { other.stop() }
      other.on("/x", .ok(png))
      let hosts = [
        "127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "１２７.1", "127。1",
      ]
      let gate = Gate()
      for number in hosts.indices { origin.on("/\(number)", .held(image("\(number)"), by: gate)) }
      let urls = hosts.enumerated().map { "http://\($1):\(origin.port)/\($0)" }
      let ids = try await service.post(batch: urls.map { ["url": $0] })
      await poll { origin.unanswered == 2 }
      // Jobs that start after these have started by then.
      #expect(try await service.run(["url": other.url("/x")]).phase == "success")
      #expect(origin.requests.count == 2)
      gate.open()
      for job in try await service.outcomes(ids) { #expect(job.phase == "success") }
      #expect(origin.mostAtOnce == 2)
    }
  }

  @Test("an origin is requested no more often than rate_per_host")
  func rate() async throws {
    try await withPipeline(["fetch.rate_per_host": "10"]) { service, origin in
      for number in 0..<20 { origin.on("/\(number)", .ok(image("\(number)"))) }
      let ids = try await service.post(batch: (0..<20).map { ["url": origin.url("/\($0)")] })
      for job in try await service.outcomes(ids) { #expect(job.phase == "success") }
      let times = origin.requests.map(\.received)
      // A tenth of a second between requests. The latency of the first and last request is not part of the
      // rate.
      #expect(times[19] - times[0] > .milliseconds(1_400))
      #expect(times[19] - times[0] < .seconds(30), "the rate is not much lower either")
    }
  }

  @Test("a path that never responds does not block the origin's other paths")
  func silentPath() async throws {
    let settings = [
      "jobs.workers": "4", "fetch.stall_timeout": "1s", "jobs.max_attempts": "1",
    ]
    try await withPipeline(settings) { service, origin in
      origin.on("/silent", .silent)
      origin.on("/a", .ok(png))
      let stalled = try await service.post(
        batch: (0..<12).map { ["url": origin.url("/silent?\($0)")] })
      for job in try await service.outcomes(stalled) {
        #expect(job.phase == "failure")
        #expect(job.error?.code == "stalled", "\(job.summary)")
      }
      let good = try await service.run(["url": origin.url("/a")])
      #expect(good.phase == "success", "\(good.summary)")
    }
  }

  @Test("an origin that never responds delays no other origin, however many jobs wait for it")
  func silent() async throws {
    let settings = [
      "jobs.workers": "16", "server.drain_timeout": "50ms", "fetch.stall_timeout": "100s",
      "fetch.timeout": "120s",
    ]
    try await withPipeline(settings) { service, dead in
      let alive = try ScriptedOrigin()
      defer { alive.stop() }
      for number in 0..<300 { dead.on("/\(number)", .silent) }
      for number in 0..<10 { alive.on("/\(number)", .ok(image("\(number)"))) }
      _ = try await service.post(batch: (0..<300).map { ["url": dead.url("/\($0)")] })
      await poll { dead.openConnections > 0 }
      let start = ContinuousClock.now
      for number in 0..<10 {
        #expect(try await service.run(["url": alive.url("/\(number)")]).phase == "success")
      }
      // Alone these jobs take about 30 ms each. One wait for the dead origin takes 100 s.
      #expect(ContinuousClock.now - start < .seconds(60))
      #expect(dead.openConnections <= 6)
      #expect(try await service.all("success").count == 10)
    }
  }

  @Test("a redirect's target counts toward the limit of its origin")
  func redirect() async throws {
    try await withPipeline(["fetch.max_per_host": "2"]) { service, first in
      let second = try ScriptedOrigin()
      defer { second.stop() }
      let gate = Gate()
      for number in 0..<6 {
        first.on("/\(number)", .redirect(to: second.url("/\(number)")))
        second.on("/\(number)", .held(image("\(number)"), by: gate))
      }
      // Two transfers of its own, and those that come from the other origin.
      let own = try await service.post(batch: [4, 5].map { ["url": second.url("/\($0)")] })
      await poll { second.unanswered == 2 }
      let led = try await service.post(batch: (0..<4).map { ["url": first.url("/\($0)")] })
      #expect(await poll { first.requests.count == 2 })
      #expect(second.requests.count == 2)
      gate.open()
      for job in try await service.outcomes(own + led) {
        #expect(job.phase == "success", "\(job.summary)")
      }
      #expect(second.mostAtOnce == 2 && second.requests.count == 6)
    }
  }

  @Test("a redirect within an origin needs no second permit")
  func redirectWithin() async throws {
    try await withPipeline(["fetch.max_per_host": "1"]) { service, origin in
      origin.on("/a", .redirect(to: "/b"))
      origin.on("/b", .ok(png))
      let job = try await service.run(["url": origin.url("/a")])
      #expect(job.phase == "success" && job.image?.url == origin.url("/b"))
    }
  }

  @Test("two full origins that redirect to each other do not wait for each other")
  func crossing() async throws {
    let settings = ["fetch.max_per_host": "1", "jobs.max_attempts": "1"]
    try await withPipeline(settings) { service, first in
      let second = try ScriptedOrigin()
      defer { second.stop() }
      let gate = Gate()
      let redirect = { (target: String) in
        ScriptedReply([.hold(gate)] + ScriptedReply.redirect(to: target).steps)
      }
      first.on("/a", redirect(second.url("/b")))
      second.on("/a", redirect(first.url("/b")))
      first.on("/b", .ok(image("1")))
      second.on("/b", .ok(image("2")))
      let ids = try await service.post(
        batch: [["url": first.url("/a")], ["url": second.url("/a")]])
      await poll { first.unanswered == 1 && second.unanswered == 1 }
      gate.open()
      for job in try await service.outcomes(ids) {
        #expect(job.phase == "success", "\(job.summary)")
      }
      #expect(first.mostAtOnce == 1 && second.mostAtOnce == 1)
    }
  }

  @Test("an origin that was unreachable five times in a row is paused and then retried")
  func circuit() async throws {
    let gone = try ScriptedOrigin()
    gone.stop()
    try await withPipeline { service, other in
      other.on("/x", .ok(png))
      // A stopped origin's port accepts no connection once its thread has closed it.
      var failures = 0
      while failures < 5 {
        let job = try await service.run(["url": gone.url("/\(failures)"), "max_attempts": 1])
        try #require(job.error?.code == "connect_failure" && job.error?.retryable == true)
        #expect(job.attempts == 1, "\(job.summary)")
        failures += 1
      }
      let refused = try await service.run(["url": gone.url("/refused"), "max_attempts": 1])
      #expect(refused.error?.code == "connect_failure" && refused.error?.retryable == true)
      #expect(refused.attempts == 0, "no request was sent: \(refused.summary)")
      #expect(try await service.run(["url": other.url("/x")]).phase == "success")

      // The origin works again; a job with attempts left notices it.
      let back = try ScriptedOrigin(port: gone.port)
      defer { back.stop() }
      back.on("/x", .ok(image("x")))
      back.on("/y", .ok(image("y")))
      let job = try await service.run(["url": back.url("/x"), "max_attempts": 4])
      #expect(job.phase == "success" && job.attempts == 1, "\(job.summary)")
      #expect(try await service.run(["url": back.url("/y"), "max_attempts": 1]).phase == "success")
    }
  }

  @Test("error statuses and broken images do not pause an origin")
  func answering() async throws {
    try await withPipeline { service, origin async throws in
      origin.on("/x", .ok(png))
      for number in 0..<7 {
        let path = number.isMultiple(of: 2) ? "/missing\(number)" : "/broken\(number)"
        origin.on("/broken\(number)", .ok(Array(png.dropLast(20))))
        #expect(try await service.run(["url": origin.url(path)]).phase == "failure")
      }
      #expect(try await service.run(["url": origin.url("/x")]).phase == "success")
    }
  }
}
