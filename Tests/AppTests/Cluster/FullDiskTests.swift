import Foundation
import TestSupport
import Testing

@Suite(
  "Instances whose PostgreSQL has a full disk", .enabled(if: SmallDisk.isPossible),
  .timeLimit(.minutes(15)))
struct FullDiskTests {
  private static let keys = ["cluster.lease": "3s", "fetch.max_per_host": "64"]

  /// Submits jobs until they are refused.
  /// - Returns: The accepted jobs and the refusal.
  private static func submitUntilRefused(
    _ cluster: Cluster, _ url: String
  ) async throws -> (taken: [String], refusal: RunningService.Answer) {
    var taken: [String] = []
    while true {
      let batch = (0..<100).map { ["url": "\(url)?\(taken.count + $0)"] }
      let answer = try await cluster[taken.count / 100 % 2].submit(batch)
      guard answer.status == 202 else { return (taken, answer) }
      let jobs = try #require(try answer.json()["jobs"] as? [[String: Any]])
      taken += jobs.compactMap { $0["id"] as? String }
      try #require(taken.count < 100_000, "nothing is ever refused")
    }
  }

  /// Submits a job. Retries, because the server may still be restarting.
  private static func submitOnceItCan(
    _ service: RunningService, _ url: String
  ) async throws -> String {
    var answer = try await service.submit([["url": url]])
    for _ in 0..<60 where answer.status == 503 {
      try await Task.sleep(for: .milliseconds(500))
      answer = try await service.submit([["url": url]])
    }
    try #require(answer.status == 202)
    let jobs = try #require(try answer.json()["jobs"] as? [[String: Any]])
    return try #require(jobs.first?["id"] as? String)
  }

  private static func expectAll(_ ids: [String], _ cluster: Cluster) async throws {
    for id in ids {
      let outcome = try await cluster[1].outcome(id)
      #expect(outcome.phase == "success", "\(outcome.summary)")
    }
    #expect(try cluster.ends == Set(ids))
  }

  @Test("a table that cannot grow is reported, nothing is lost, and work continues later")
  func tables() async throws {
    let server = try PostgresServer(isDurable: true, onSmallDisk: .tables)
    try await Cluster.open(2, Self.keys, on: server) { cluster, origin in
      origin.on("/x", .ok(Fixtures.smallPNG, headers: [("Cache-Control", "no-store")]))
      try server.fillDisk(true)
      let (taken, refusal) = try await Self.submitUntilRefused(cluster, origin.url("/x"))
      let told = String(decoding: refusal.body, as: UTF8.self)
      #expect(refusal.status == 503 && refusal.headers["retry-after"] != nil, "\(told)")
      // The code depends on which write fails first: the job's row, the lease's row, or the server's own
      // files.
      let codes = ["storage_full", "starting", "store_unavailable"]
      #expect(codes.contains(where: told.contains), "\(told)")
      try server.fillDisk(false)
      for service in cluster.services {
        try await eventually { try await service.get("/readyz").status == 200 }
      }
      let last = try await Self.submitOnceItCan(cluster[0], origin.url("/x"))
      try await Self.expectAll(taken + [last], cluster)
    }
  }

  @Test("nothing is lost if the server crashes because its log cannot grow")
  func log() async throws {
    let server = try PostgresServer(isDurable: true, onSmallDisk: .log)
    try await Cluster.open(2, Self.keys, on: server) { cluster, origin in
      origin.on("/x", .ok(Fixtures.smallPNG, headers: [("Cache-Control", "no-store")]))
      try server.fillDisk(true)
      // Faster than by jobs: the rest of the current log segments cannot be used after this.
      for _ in 0..<4 { _ = try? server.run("SELECT pg_switch_wal()") }
      let (taken, refusal) = try await Self.submitUntilRefused(cluster, origin.url("/x"))
      let told = String(decoding: refusal.body, as: UTF8.self)
      #expect(refusal.status == 503 && refusal.headers["retry-after"] != nil, "\(told)")
      server.crash()
      try server.fillDisk(false)
      try server.start()
      for service in cluster.services {
        try await eventually { try await service.get("/readyz").status == 200 }
      }
      let last = try await Self.submitOnceItCan(cluster[0], origin.url("/x"))
      try await Self.expectAll(taken + [last], cluster)
    }
  }
}
