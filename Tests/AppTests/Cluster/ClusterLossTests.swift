import Foundation
import TestSupport
import Testing

@Suite("Lost instances", .timeLimit(.minutes(15)))
struct ClusterLossTests {
  /// Jobs that one instance loads and whose images are incomplete. Every other image is too large for the
  /// database.
  private struct Held {
    let gate = Gate()
    let holder: RunningService
    /// The ids by path.
    let ids: [String: String]

    var bytes: [String: [UInt8]] {
      Dictionary(uniqueKeysWithValues: ids.map { ($1, Self.body($0)) })
    }

    static func body(_ path: String) -> [UInt8] {
      image(path, from: path.count % 2 == 0 ? Fixtures.smallPNG : Fixtures.filedPNG)
    }

    /// Starts jobs that only the first service loads.
    init(_ count: Int, in cluster: Cluster, _ origin: ScriptedOrigin) async throws {
      let (holder, others) = (cluster[0], cluster.others(than: cluster[0]))
      // While the other services are stopped, they claim nothing.
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

    /// Returns how long it took until other instances had requested all images.
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
  /// Whether the default lease is tested, too, which takes longer.
  private static let isLong = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"

  @Test(
    "after kill -9 others take the jobs over when the lease expires, and each ends once",
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
      // The lease, a second between two checks, and time for a busy machine.
      #expect(time < .seconds(lease == nil ? 20 : 15), "\(time)")
      held.gate.open()
      try await cluster.expectSuccess(held.bytes, through: [cluster[1], cluster[2]])
      #expect(try cluster.ends.count == 12)
      #expect(try await listener.ended() == 0)
      #expect(Event.all(listener).last?.job.phase == "success")
    }
  }

  @Test("results of a suspended instance that arrive too late are ignored, and it works on")
  func stopped() async throws {
    try await Cluster.open(3, Self.keys) { cluster, origin in
      let held = try await Held(12, in: cluster, origin)
      let moment = ContinuousClock.now
      kill(held.holder.processIdentifier, SIGSTOP)
      let time = await held.takenOver(since: moment, origin)
      print("stopped: taken over after \(time)")
      #expect(time < .seconds(30), "\(time)")
      // The stopped instance waits for the rest of each image, too.
      held.gate.open()
      try await cluster.expectSuccess(held.bytes, through: [cluster[1], cluster[2]])
      kill(held.holder.processIdentifier, SIGCONT)
      try await eventually { held.holder.log.contains("the lease was lost") }
      try await eventually { try await held.holder.get("/readyz").status == 200 }
      try await cluster.expectSuccess(held.bytes, through: cluster.services)
      #expect(try cluster.ends.count == 12)

      // Only this instance is left to work on the next job.
      for other in [cluster[1], cluster[2]] { #expect(try await other.stop() == 0) }
      origin.on("/new", .ok(Fixtures.filedPNG))
      let job = try await held.holder.run(["url": origin.url("/new")])
      #expect(job.phase == "success", "\(job.summary)")
      #expect(try await held.holder.image(of: job.id) == Fixtures.filedPNG)
    }
  }

  @Test("after SIGTERM an instance hands its jobs over at once, whatever its lease")
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
      // A busy machine may need time, but a lease takes longer.
      #expect(time < .seconds(60), "\(time)")
      held.gate.open()
      #expect(try await held.holder.ended() == 0)
      try await cluster.expectSuccess(held.bytes, through: [cluster[1], cluster[2]])
    }
  }

  @Test("listeners receive the events missed while the connection for events was lost")
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
      // The first instance's connection is the older one. The instance waits for a moment before it
      // reconnects.
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

  @Test("jobs queued while the connection for events is lost are found by other instances")
  func unheard() async throws {
    try await Cluster.open(2, ["jobs.workers": "1"]) { cluster, origin in
      let gate = Gate()
      origin.on("/held", .held(Fixtures.smallPNG, after: 10, by: gate))
      origin.on("/next", .ok(Fixtures.smallPNG))
      let id = try await cluster[0].post(["url": origin.url("/held")])
      let busy = try await cluster.holder(of: id)
      // The first instance's connection is the older one.
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
