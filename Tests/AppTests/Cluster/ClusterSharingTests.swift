import Foundation
import TestSupport
import Testing

@Suite("Instances that share their limits and results", .timeLimit(.minutes(15)))
struct ClusterSharingTests {
  /// Submits jobs for these URLs, to one instance after the other.
  private static func submit(
    _ urls: [String], to cluster: Cluster
  ) async throws -> [String] {
    try await urls.enumerated().asyncMap { number, url in
      try await cluster[number % cluster.services.count].post(["url": url])
    }
  }

  @Test("equal jobs share one transfer and its progress, whichever instance receives them")
  func coalesced() async throws {
    try await Cluster.open { cluster, origin in
      let gate = Gate()
      let body = Fixtures.filedPNG
      origin.on(
        "/x", .held(body, after: 40_000, by: gate, headers: [("Cache-Control", "no-store")]))
      let ids = try await Self.submit(Array(repeating: origin.url("/x"), count: 30), to: cluster)
      let listeners = try ids.prefix(6).enumerated().map { number, id in
        try Listener.eventSource("\(cluster[(number + 1) % 3].base)/jobs/\(id)/events")
      }
      for listener in listeners {
        try await eventually { Event.all(listener).last?.job.progress.completed == 40_000 }
      }
      for id in ids {
        try await eventually { try await cluster[0].job(id).phase == "loading" }
      }
      // These join a transfer in progress. No client listens to their events.
      let late = try await Self.submit(Array(repeating: origin.url("/x"), count: 6), to: cluster)
      for id in late {
        try await eventually { try await cluster[0].job(id).phase == "loading" }
      }
      gate.open()
      try await cluster.expectSuccess(
        Dictionary(uniqueKeysWithValues: (ids + late).map { ($0, body) }), through: cluster.services
      )
      #expect(origin.requests.count == 1)
      for listener in listeners { #expect(try await listener.ended() == 0) }
    }
  }

  @Test("a load continues if its first job is cancelled, and restarts if its instance is lost")
  func passedOn() async throws {
    try await Cluster.open(3, ["cluster.lease": "5s"]) { cluster, origin in
      let gate = Gate()
      let body = Fixtures.filedPNG
      origin.on(
        "/x", .held(body, after: 40_000, by: gate, headers: [("Cache-Control", "no-store")]))
      let ids = try await Self.submit(Array(repeating: origin.url("/x"), count: 9), to: cluster)
      for id in ids {
        try await eventually { try await cluster[0].job(id).phase == "loading" }
      }
      let holder = try await cluster.holder(of: ids[0])
      try await cluster.others(than: holder)[0].cancel(ids[0])
      let more = try await Self.submit(Array(repeating: origin.url("/x"), count: 3), to: cluster)
      for id in more {
        try await eventually { try await cluster[0].job(id).phase == "loading" }
      }
      #expect(origin.requests.count == 1)
      try await holder.kill()
      await origin.waitForRequests(to: "/x", count: 2)
      gate.open()
      let jobs = Dictionary(uniqueKeysWithValues: (ids.dropFirst() + more).map { ($0, body) })
      for id in jobs.keys {
        let job = try await cluster.others(than: holder)[0].outcome(id)
        #expect(job.phase == "success", "\(job.summary)")
      }
      #expect(origin.requests.count == 2)
      #expect(try cluster.ends.count == 12)
    }
  }

  /// A response that pauses shortly before its end and does not end before the gate opens.
  private static func slow(_ body: [UInt8], _ gate: Gate) -> ScriptedReply {
    guard case .send(let bytes)? = ScriptedReply.ok(body).steps.first else { return .status(500) }
    return ScriptedReply(
      .send(Array(bytes.dropLast(10))), .hold(gate), .pause(.milliseconds(50)),
      .send(Array(bytes.suffix(10))))
  }

  @Test("an origin never sees more transfers at once than the limit for all instances")
  func limited() async throws {
    try await Cluster.open(3, ["fetch.max_per_host": "4"]) { cluster, origin in
      let gate = Gate()
      for number in 0..<90 {
        origin.on("/\(number)", Self.slow(Fixtures.smallPNG, gate))
      }
      let ids = try await withThrowingTaskGroup(of: [String].self) { group in
        for client in 0..<3 {
          group.addTask {
            try await (0..<30).asyncMap {
              try await cluster[client].post(["url": origin.url("/\(client * 30 + $0)")])
            }
          }
        }
        return try await group.reduce(into: []) { $0 += $1 }
      }
      #expect(await poll { origin.unanswered >= 3 })
      gate.open()
      for id in ids {
        let job = try await cluster[0].outcome(id)
        #expect(job.phase == "success", "\(job.summary)")
      }
      #expect(origin.requests.count == 90)
      #expect(origin.mostAtOnce <= 4, "\(origin.mostAtOnce)")
      let holders = try cluster.run("SELECT count(DISTINCT last_claim >> 32) FROM jobs")
      print("limited: \(origin.mostAtOnce) at once, by \(holders.filter(\.isNumber)) instances")
    }
  }

  @Test("an origin is never requested more often than the rate limit for all instances")
  func rated() async throws {
    try await Cluster.open(3, ["fetch.rate_per_host": "10"]) { cluster, origin in
      for number in 0..<24 { origin.on("/\(number)", .ok(Fixtures.smallPNG)) }
      let ids = try await Self.submit((0..<24).map { origin.url("/\($0)") }, to: cluster)
      for id in ids { #expect(try await cluster[0].outcome(id).phase == "success") }
      let times = origin.requests.map(\.received).sorted()
      // One instance alone needs 23 pauses of 100 ms. On a busy machine the first request may be late, but
      // not several of them.
      let isKept = (0..<6).contains {
        times[23] - times[$0] > .milliseconds((23 - $0) * 100 - 200)
      }
      let took = times[23] - times[0]
      #expect(isKept && took < .seconds(60), "\(took)")
      print("rated: 24 requests in \(took)")
    }
  }

  @Test("each instance reports which instances exist, what they load, and which one leads")
  func present() async throws {
    try await Cluster.open(3, ["cluster.name": "fetch", "cluster.lease": "5s"]) {
      cluster, origin in
      let gate = Gate()
      for path in ["/1", "/2"] { origin.on(path, .held(Fixtures.smallPNG, after: 10, by: gate)) }
      for path in ["/1", "/2"] {
        let id = try await cluster[0].post(["url": origin.url(path)])
        try await eventually { try await cluster[0].job(id).phase == "loading" }
      }
      for (index, service) in cluster.services.enumerated() {
        let told = try await Self.instances(service)
        #expect(told.map { $0["number"] as? Int } == (0..<3).map(cluster.number(of:)))
        #expect(told.map { $0["leads"] as? Bool } == [true, false, false])
        #expect(told.map { $0["this"] as? Bool } == (0..<3).map { $0 == index })
        #expect(told.allSatisfy { $0["name"] as? String == "fetch" && $0["since"] is String })
        #expect(told.compactMap { $0["loading"] as? Int }.reduce(0, +) == 2)
      }
      let metrics = String(decoding: try await cluster[1].get("/metrics").body, as: UTF8.self)
      #expect(metrics.contains("imagefetch_queue_jobs{state=\"loading\"} 2"))
      gate.open()
      try await cluster[0].kill()
      try await eventually { try await Self.instances(cluster[1]).count == 2 }
      try await eventually { try await Self.instances(cluster[2])[0]["leads"] as? Bool == true }
    }
  }

  @Test("the dashboard shows the instances", .browser)
  func shown() async throws {
    try await Cluster.open(2, ["cluster.name": "fetch", "cluster.lease": "5s"]) { cluster, origin in
      let browser = try await Browser()
      let page = Dashboard(service: cluster[1], origin: origin, browser: browser)
      do {
        try await browser.open(cluster[1].base + "/")
        try await page.run("$('glance').open = true")
        try await page.sees(
          "!$('instances-shown').hidden && text($('instances-count')) === '2'")
        try await page.sees(
          """
          [...$('instances').children].map(text).every((line, index) =>
            line.startsWith('fetch: 0 loading, 0 of 64 workers busy, since ')
              && line.endsWith('(leads)') === (index === 0))
          """)
        try await page.sees("text($('queue-text')).includes('0 of 128 workers busy')")
        try await cluster[0].kill()
        try await page.sees(
          """
          text($('instances-count')) === '1' && $('instances').children.length === 2
            && text($('instances').querySelector('.lost')).startsWith('fetch: gone since ')
          """)
        #expect(try await page.complaints() == [])
      } catch {
        await browser.close()
        throw error
      }
      await browser.close()
    }
  }

  @Test("each instance reports the activity and the cache of all instances")
  func figures() async throws {
    try await Cluster.open(3, ["jobs.max_attempts": "1"]) { cluster, origin in
      origin.on("/x", .ok(Fixtures.smallPNG))
      let gate = Gate()
      origin.on("/held", .held(Fixtures.smallPNG, by: gate))
      for service in cluster.services {
        for path in ["/x", "/none"] { _ = try await service.run(["url": origin.url(path)]) }
      }
      let held = try await cluster[0].post(["url": origin.url("/held")])
      try await eventually { try await cluster[1].job(held).phase == "loading" }
      for service in cluster.services {
        try await eventually {
          let activity = try await service.get("/activity").json()
          let sum = { (name: String) in (activity[name] as? [Int] ?? []).reduce(0, +) }
          return sum("succeeded") == 3 && sum("failed") == 3
            && (activity["loading"] as? [Int])?.last == 1
        }
        let instances = try await Self.instances(service)
        #expect(instances.compactMap { $0["running"] as? Int }.reduce(0, +) == 1)
        #expect(instances.compactMap { $0["workers"] as? Int } == [64, 64, 64])
        let oldest = instances.compactMap { $0["oldest_running_seconds"] as? Double }
        #expect(oldest.count { $0 > 0 } == 1)
        try await eventually {
          let cache = try await service.get("/cache").json()
          let all = ["hits", "revalidations", "misses"].compactMap { cache[$0] as? Int }
          return all.reduce(0, +) == 3
        }
      }
      // The counts of an instance outlive it.
      try await cluster[0].kill()
      let activity = try await cluster[1].get("/activity").json()
      #expect((activity["succeeded"] as? [Int])?.reduce(0, +) == 3)
      let end = try #require(activity["end"] as? String)
      #expect(end.contains(#/:\d[05]\.000Z$/#), "\(end)")
      gate.open()
    }
  }

  private static func instances(_ service: RunningService) async throws -> [[String: Any]] {
    try #require(try await service.get("/instances").json()["instances"] as? [[String: Any]])
  }

  @Test("only the instance that loads a job has its preview, and every instance has the image")
  func previews() async throws {
    try await Cluster.open(3) { cluster, origin in
      let file = Fixtures.progressiveJPEG
      let shown = JPEGFixture(file).scanEnds[2] + 4
      let gate = Gate()
      origin.on("/x", .held(file, after: shown, by: gate))
      let id = try await cluster[0].post(["url": origin.url("/x")])
      func answers() async throws -> [RunningService.Answer] {
        try await cluster.services.asyncMap { try await $0.get("/jobs/\(id)/preview") }
      }
      try await eventually {
        try await answers().contains { $0.headers["image-preview"] == "scan=3" }
      }
      #expect(try await answers().map(\.status).sorted() == [200, 204, 204])
      gate.open()
      #expect(try await cluster[1].outcome(id).phase == "success")
      for service in cluster.services {
        #expect(try await Array(service.get("/jobs/\(id)/preview").body) == file)
      }
    }
  }

  @Test("idle instances query the database rarely, and a new one follows earlier settings")
  func idle() async throws {
    // The server's own maintenance would be counted, too.
    try await Cluster.open(on: PostgresServer(hasUpkeep: false)) { cluster, _ in
      try await cluster[1].setConstrained(true)
      func transactions() throws -> Int {
        let database = cluster.database
        let told = try database.server.run(
          "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '\(database.name)'"
        )
        return Int(told.filter(\.isNumber)) ?? 0
      }
      // Sweeps and initial queries come first, which takes longer on a busy machine.
      var rate = Double.infinity
      for _ in 0..<10 where rate > 5 {
        let (before, start) = (try transactions(), ContinuousClock.now)
        try await Task.sleep(for: .seconds(3))
        let count = try transactions() - before
        rate = min(rate, Double(count) / ((ContinuousClock.now - start) / .seconds(1)) / 3)
      }
      #expect(rate > 0.5 && rate <= 5, "\(rate) transactions a second and instance")
      print("idle: \(rate) transactions a second and instance")

      let folder = try RunningService.makeFolder()
      defer { try? FileManager.default.removeItem(atPath: folder) }
      var settings = cluster.bucket.settings
      settings["IMAGEFETCH_STORAGE_JOBS"] = cluster.database.url
      let late = try await RunningService(folder: folder, settings: settings)
      #expect(try await late.get("/network").json()["constrained"] as? Bool == true)
      #expect(try await late.stop() == 0)
    }
  }
}
