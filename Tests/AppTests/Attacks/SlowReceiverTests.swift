import Foundation
import TestSupport
import Testing

/// One tenant has images delivered to receivers that never answer. Other tenants' jobs go on as if it were not there.
@Suite("A tenant whose receivers never answer", .timeLimit(.minutes(15)))
struct SlowReceiverTests {
  private static let keys = [
    "jobs.workers": "4", "server.drain_timeout": "0s",
  ].merging(twoOwners) { $1 }

  @Test("a tenant with slow receivers takes no workers of another tenant")
  func workers() async throws {
    try await withPipeline(Self.keys) { service, origin async throws in
      try await Self.attack([service], origin, ownURLs: true)
    }
  }

  @Test("a tenant with slow receivers does not keep another tenant from a variant of the same URL")
  func hostages() async throws {
    try await withPipeline(Self.keys) { service, origin async throws in
      try await Self.attack([service], origin, ownURLs: false)
    }
  }

  @Test(
    "a tenant with slow receivers takes nothing of another tenant at three instances either",
    arguments: [true, false])
  func instances(ownURLs: Bool) async throws {
    try await Cluster.open(3, Self.keys) { cluster, origin in
      try await Self.attack(cluster.services, origin, ownURLs: ownURLs)
    }
  }

  /// - Parameter ownURLs: whether each job has a URL of its own; false: all jobs, also of the other tenant, have the same.
  private static func attack(
    _ services: [RunningService], _ origin: ScriptedOrigin, ownURLs: Bool
  ) async throws {
    origin.on("/put", ScriptedReply(.waitForClose))
    func job(_ number: Int) -> [String: Any] {
      let path = "/\(ownURLs ? number : 0)"
      origin.on(path, .ok(Fixtures.smallPNG))
      return ["url": origin.url(path), "variants": [["name": "v", "width": 1 + number]]]
    }
    var held: [String] = []
    for (number, service) in services.flatMap({ Array(repeating: $0, count: 12) }).enumerated() {
      let members = job(number).merging(["deliver": [["put": origin.url("/put")]]]) { $1 }
      held.append(try await service.post(members, headers: anna))
    }
    await origin.waitForRequests(to: "/put")
    for (number, service) in services.enumerated() {
      let answer = try await service.run(job(100 + number), headers: bert)
      #expect(answer.phase == "success" && answer.image?.variants.count == 1, "\(answer.summary)")
    }
    for id in held {
      // All of them wait for their turn or for the receiver.
      let job = try await services[0].job(id, headers: anna)
      #expect(!["success", "failure"].contains(job.phase), "\(job.summary)")
      let answer = try await services[0].send("DELETE", "/jobs/\(id)", headers: anna)
      #expect(answer.status == 200)
    }
  }
}
