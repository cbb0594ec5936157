import Foundation
import TestSupport
import Testing

@Suite("Instances that are lost", .timeLimit(.minutes(5)))
struct ClusterLossTests {
  /// Jobs that one instance loads, of images that are held back, every other one larger than the database takes in.
  private struct Held {
    let gate = Gate()
    let holder: RunningService
    /// By path.
    let ids: [String: String]

    var bytes: [String: [UInt8]] {
      Dictionary(uniqueKeysWithValues: ids.map { ($1, Self.body($0)) })
    }

    static func body(_ path: String) -> [UInt8] {
      image(path, from: path.count % 2 == 0 ? Fixtures.smallPNG : Fixtures.filedPNG)
    }

    /// Has so many be loading at the first service, alone.
    init(_ count: Int, in cluster: Cluster, _ origin: ScriptedOrigin) async throws {
      let (holder, others) = (cluster[0], cluster.others(than: cluster[0]))
      // While the others stand still they claim nothing.
      for other in others { kill(other.processIdentifier, SIGSTOP) }
      defer { for other in others { kill(other.processIdentifier, SIGCONT) } }
      var ids: [String: String] = [:]
      for number in 0..<count {
        let path = "/\(String(repeating: "x", count: number + 1))"
        origin.on(path, .held(Self.body(path), after: 200, by: gate))
        ids[path] = try await holder.post(["url": origin.url(path)])
      }
      (self.holder, self.ids) = (holder, ids)
      for path in ids.keys { await origin.waitForRequests(to: path) }
    }

    /// How long it took from then until others had asked for all of them.
    func takenOver(
      since moment: ContinuousClock.Instant, _ origin: ScriptedOrigin
    ) async -> Duration {
      var longest = Duration.zero
      for path in ids.keys {
        await origin.waitForRequests(to: path, count: 2)
        let requests = origin.requests(to: path)
        if requests.count > 1 { longest = max(longest, requests[1].received - moment) }
      }
      return longest
    }
  }

  private static let keys = ["cluster.lease": "3s", "fetch.max_per_host": "64"]
  /// Whether the default lease is tried as well, which takes longer.
  private static let isLong = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"

  @Test(
    "by kill -9: others take their jobs over once the lease is over, and each ends once",
    arguments: isLong ? [nil, "3s"] : ["3s"])
  func killed(lease: String?) async throws {
    var keys = Self.keys
    keys["cluster.lease"] = lease
    try await Cluster.open(3, keys) { cluster, origin in
      let held = try await Held(12, in: cluster, origin)
      let id = try #require(held.ids.values.first)
      let listener = try Listener.eventSource("\(cluster[1].base)/jobs/\(id)/events")
      let moment = ContinuousClock.now
      try await held.holder.kill()
      let time = await held.takenOver(since: moment, origin)
      print("killed: taken over after \(time), at a lease of \(lease ?? "the default")")
      // The lease, a second between two looks, and what a busy machine takes.
      #expect(time < .seconds(lease == nil ? 20 : 15), "\(time)")
      held.gate.open()
      try await cluster.expectSuccess(held.bytes, through: [cluster[1], cluster[2]])
      #expect(try cluster.ends.count == 12)
      #expect(try await listener.ended() == 0)
      #expect(Event.all(listener).last?.job.phase == "success")
    }
  }

  @Test("by standing still: what they come too late with counts for nothing, and they work on")
  func stopped() async throws {
    try await Cluster.open(3, Self.keys) { cluster, origin in
      let held = try await Held(12, in: cluster, origin)
      let moment = ContinuousClock.now
      kill(held.holder.processIdentifier, SIGSTOP)
      let time = await held.takenOver(since: moment, origin)
      print("stopped: taken over after \(time)")
      #expect(time < .seconds(30), "\(time)")
      // The rest of each image waits for the stopped one, too.
      held.gate.open()
      try await cluster.expectSuccess(held.bytes, through: [cluster[1], cluster[2]])
      kill(held.holder.processIdentifier, SIGCONT)
      try await eventually { held.holder.log.contains("the lease was lost") }
      try await eventually { try await held.holder.get("/readyz").status == 200 }
      try await cluster.expectSuccess(held.bytes, through: cluster.services)
      #expect(try cluster.ends.count == 12)

      // It alone is there to work on this one.
      for other in [cluster[1], cluster[2]] { #expect(try await other.stop() == 0) }
      origin.on("/new", .ok(Fixtures.filedPNG))
      let job = try await held.holder.run(["url": origin.url("/new")])
      #expect(job.phase == "success", "\(job.summary)")
      #expect(try await held.holder.image(of: job.id) == Fixtures.filedPNG)
    }
  }

  @Test("by SIGTERM: they hand their jobs over at once, whatever their lease")
  func drained() async throws {
    let keys = [
      "cluster.lease": "5m", "server.drain_timeout": "0s", "fetch.max_per_host": "64",
    ]
    try await Cluster.open(3, keys) { cluster, origin in
      let held = try await Held(6, in: cluster, origin)
      let moment = ContinuousClock.now
      held.holder.terminate()
      let time = await held.takenOver(since: moment, origin)
      print("drained: taken over after \(time)")
      // Beside other tests a machine may take its time; a lease takes longer.
      #expect(time < .seconds(60), "\(time)")
      held.gate.open()
      #expect(try await held.holder.ended() == 0)
      try await cluster.expectSuccess(held.bytes, through: [cluster[1], cluster[2]])
    }
  }

  @Test("with their connection for news: who listens there to all jobs hears of what was missed")
  func unheardByListeners() async throws {
    try await Cluster.open(2) { cluster, origin in
      let gate = Gate()
      origin.on("/before", .held(Fixtures.smallPNG, by: gate))
      for path in ["/missed", "/after"] { origin.on(path, .ok(Fixtures.smallPNG)) }
      let before = try await cluster[1].post(["url": origin.url("/before")])
      let listener = try Listener.eventSource("\(cluster[0].base)/events")
      func hears(_ id: String) async throws {
        try await eventually {
          Event.all(listener).contains { $0.job.id == id && $0.job.phase == "success" }
        }
      }
      try await eventually { Event.all(listener).contains { $0.job.id == before } }
      gate.open()
      try await hears(before)
      // The first one's is the older. It waits for a moment before it connects again.
      let told = try cluster.run(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'imagefetch pg-news'
        ORDER BY backend_start LIMIT 1
        """)
      #expect(told.contains("t"))
      let missed = try await cluster[1].run(["url": origin.url("/missed")]).id
      try await hears(try await cluster[1].run(["url": origin.url("/after")]).id)
      try await hears(missed)
      listener.leave()
    }
  }

  @Test("with their connection for news: what they queue then is found by others all the same")
  func unheard() async throws {
    try await Cluster.open(2, ["jobs.workers": "1"]) { cluster, origin in
      let gate = Gate()
      origin.on("/held", .held(Fixtures.smallPNG, after: 10, by: gate))
      origin.on("/next", .ok(Fixtures.smallPNG))
      let id = try await cluster[0].post(["url": origin.url("/held")])
      let busy = try await cluster.holder(of: id)
      // The first one's is the older.
      let told = try cluster.run(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ~ 'LISTEN|pg_notify'
        ORDER BY backend_start LIMIT 1 OFFSET \(busy === cluster[0] ? 0 : 1)
        """)
      #expect(told.contains("t"))
      let began = ContinuousClock.now
      let next = try await busy.post(["url": origin.url("/next")])
      #expect(try await busy.outcome(next).phase == "success")
      #expect(.now - began < .seconds(30), "\(.now - began)")
      gate.open()
      #expect(try await cluster[1].outcome(id).phase == "success")
    }
  }
}
