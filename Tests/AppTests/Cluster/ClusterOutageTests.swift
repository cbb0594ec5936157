import Foundation
import TestSupport
import Testing

/// Each test runs while jobs are submitted.
@Suite("Instances whose database or bucket fails", .timeLimit(.minutes(15)))
struct ClusterOutageTests {
  @Test("nothing is lost when PostgreSQL crashes and restarts")
  func crash() async throws {
    let server = try PostgresServer(isDurable: true)
    try await Cluster.open(3, Crowd.keys, on: server) { cluster, origin in
      let crowd = Crowd(cluster, origin)
      let jobs = try await crowd.submit {
        for _ in 0..<2 {
          try await crowd.submitted(16)
          server.crash()
          try await eventually { try await cluster[0].get("/readyz").status == 503 }
          try server.start()
        }
        try await crowd.submitted(16)
      }
      try await crowd.expectNothingLost(jobs, undoesClaims: true)
    }
  }

  @Test("nothing is lost when a synchronous standby takes over from PostgreSQL")
  func failover() async throws {
    let primary = try PostgresServer(isDurable: true)
    let standby = try PostgresServer(isDurable: true, standbyOf: primary)
    let url = { (database: String) in
      "postgresql://imagefetch@127.0.0.1:\(primary.port),127.0.0.1:\(standby.port)/\(database)"
        + "?target_session_attrs=read-write"
    }
    try await Cluster.open(3, Crowd.keys, on: primary, url: url) { cluster, origin in
      let crowd = Crowd(cluster, origin)
      var first: String?
      var jobs = try await crowd.submit {
        try await crowd.submitted(16)
        primary.crash()
        let moment = ContinuousClock.now
        try standby.promote()
        cluster.ask(standby)
        try await eventually {
          let answer = try await cluster[1].submit(["url": origin.url("/0")])
          first = try? answer.json()["id"] as? String
          return answer.status == 202
        }
        print("failover: a job was taken \(ContinuousClock.now - moment) after the crash")
        try await crowd.submitted(16)
      }
      jobs[try #require(first)] = Crowd.body(0)
      try await crowd.expectNothingLost(jobs, undoesClaims: true)
    }
  }

  @Test(
    "nothing is lost while PostgreSQL hangs for longer than a lease, or is cut off")
  func database() async throws {
    let keys = Crowd.keys.merging(["cluster.lease": "3s"]) { $1 }
    try await Cluster.open(3, keys, isProxied: true) { cluster, origin in
      let proxy = try #require(cluster.proxies).database
      let crowd = Crowd(cluster, origin)
      let jobs = try await crowd.submit {
        try await crowd.submitted(16)
        proxy.become(.stall)
        // A third of the lease has passed then, and all of it after the sleep.
        try await eventually { try await cluster[0].get("/readyz").status == 503 }
        try await Task.sleep(for: .seconds(4))
        #expect(try await cluster[0].get("/livez").status == 200)
        proxy.become(.none)
        for service in cluster.services {
          try await eventually { try await service.get("/readyz").status == 200 }
        }
        proxy.become(.cut)
        try await eventually { try await cluster[0].get("/readyz").status == 503 }
        proxy.become(.slow(bytesPerSecond: 2_000_000))
        try await crowd.submitted(16)
        proxy.become(.none)
      }
      try await crowd.expectNothingLost(jobs)
    }
  }

  @Test("an instance reports within a third of the lease that PostgreSQL hangs")
  func readiness() async throws {
    try await Cluster.open(1, ["cluster.lease": "15s"], isProxied: true) { cluster, _ in
      let proxy = try #require(cluster.proxies).database
      proxy.become(.stall)
      let moment = ContinuousClock.now
      try await eventually { try await cluster[0].get("/readyz").status == 503 }
      // Five seconds, and time for a busy machine.
      #expect(ContinuousClock.now - moment < .seconds(12))
      proxy.become(.none)
      try await eventually { try await cluster[0].get("/readyz").status == 200 }
    }
  }

  @Test(
    "a purge is answered while a deletion from the bucket hangs, and the image is deleted later")
  func purge() async throws {
    try await Cluster.open(2, isProxied: true) { cluster, origin in
      let proxy = try #require(cluster.proxies).bucket
      origin.on("/filed", .ok(Fixtures.filedPNG))
      origin.on("/small", .ok(Fixtures.smallPNG))
      let filed = try await cluster[0].run(["url": origin.url("/filed")]).id
      let small = try await cluster[1].run(["url": origin.url("/small")]).id
      #expect(try await cluster.bucket.keys.count == 1)
      proxy.judge { $0.starts(with: Array("DELETE ".utf8)) ? .stall : .none }
      for id in [filed, small] {
        let moment = ContinuousClock.now
        #expect(try await cluster[1].send("DELETE", "/jobs/\(id)?purge=true").status == 204)
        // The deletion times out after a minute.
        #expect(ContinuousClock.now - moment < .seconds(30))
        try await eventually { try await cluster[0].get("/jobs/\(id)").status == 404 }
      }
      try await eventually { proxy.stalled > 0 }
      proxy.judge(nil)
      try await eventually { try await cluster.bucket.keys.isEmpty }
    }
  }

  @Test("nothing is lost while the bucket hangs, is cut off, or refuses in every way")
  func bucket() async throws {
    try await Cluster.open(3, Crowd.keys, isProxied: true) { cluster, origin in
      let proxy = try #require(cluster.proxies).bucket
      let crowd = Crowd(cluster, origin)
      let jobs = try await crowd.submit {
        let faults: [FaultyProxy.Fault] = [
          .stall, .cut, .answer(FaultyProxy.refusal(503, "SlowDown")),
          .answer(FaultyProxy.refusal(500, "InternalError")), .answer(Array("\u{1}?\r\n".utf8)),
        ]
        for fault in faults {
          try await crowd.submitted(8)
          proxy.become(fault)
          try await crowd.submitted(16)
          proxy.become(.none)
        }
      }
      try await crowd.expectNothingLost(jobs)
    }
  }

  @Test("a lost instance's jobs are taken over even while a deletion from the bucket hangs")
  func takenOver() async throws {
    // Expired jobs are deleted at once by the next instance that sweeps.
    let keys = Crowd.keys.merging([
      "cluster.lease": "3s", "jobs.retention": "2s", "cache.enabled": "false",
    ]) { $1 }
    try await Cluster.open(2, keys, isProxied: true) { cluster, origin in
      let proxy = try #require(cluster.proxies).bucket
      let gate = Gate()
      origin.on("/filed", .ok(Fixtures.filedPNG))
      origin.on("/held", .held(Fixtures.smallPNG, after: 10, by: gate))
      let held = try await cluster[0].post(["url": origin.url("/held")])
      let holder = try await cluster.holder(of: held)
      let other = cluster.others(than: holder)[0]
      proxy.judge { $0.starts(with: Array("DELETE ".utf8)) ? .stall : .none }
      _ = try await other.run(["url": origin.url("/filed")])
      // Before the suspended instance can delete the image.
      kill(holder.processIdentifier, SIGSTOP)
      try await eventually { proxy.stalled > 0 }
      let moment = ContinuousClock.now
      try await holder.kill()
      await origin.waitForRequests(to: "/held", count: 2)
      // The lease of 3 s, a second between two checks, and time for a busy machine. The deletion would time
      // out after a minute.
      #expect(ContinuousClock.now - moment < .seconds(30))
      proxy.judge(nil)
      gate.open()
      #expect(try await other.outcome(held).phase == "success")
    }
  }

  @Test("a full bucket or database disk is reported, and work continues afterwards")
  func full() async throws {
    let keys = ["jobs.max_attempts": "1"]
    try await Cluster.open(2, keys, isProxied: true) { cluster, origin in
      let proxy = try #require(cluster.proxies).bucket
      origin.on("/filed", .ok(Fixtures.filedPNG))
      origin.on("/small", .ok(Fixtures.smallPNG))
      proxy.become(.answer(FaultyProxy.refusal(507, "InsufficientStorage")))
      let refused = try await cluster[0].run(["url": origin.url("/filed")])
      #expect(refused.error?.code == "storage_full", "\(refused.summary)")
      proxy.become(.none)
      let filed = try await cluster[1].run(["url": origin.url("/filed")])
      #expect(filed.phase == "success", "\(filed.summary)")

      // The error that the server reports when a table cannot grow.
      try cluster.run(
        """
        CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
          'BEGIN RAISE EXCEPTION $$could not extend file$$ USING ERRCODE = $$disk_full$$; END';
        CREATE TRIGGER no_room BEFORE INSERT ON jobs EXECUTE FUNCTION no_room();
        CREATE TRIGGER no_room BEFORE INSERT ON contents EXECUTE FUNCTION no_room();
        """)
      let answer = try await cluster[0].submit(["url": origin.url("/small")])
      let told = String(decoding: answer.body, as: UTF8.self)
      #expect(answer.status == 503 && told.contains("storage_full"), "\(told)")
      try cluster.run("DROP TRIGGER no_room ON jobs")
      try await eventually { try await cluster[0].get("/readyz").status == 200 }
      let unkept = try await cluster[0].run(["url": origin.url("/small")])
      #expect(unkept.error?.code == "storage_full", "\(unkept.summary)")
      try cluster.run("DROP TRIGGER no_room ON contents")
      let kept = try await cluster[1].run(["url": origin.url("/small")])
      #expect(kept.phase == "success", "\(kept.summary)")
      #expect(try await cluster[0].image(of: kept.id) == Fixtures.smallPNG)
    }
  }
}
