import Foundation
import TestSupport
import Testing

@Suite("Webhooks of instances that share a store", .timeLimit(.minutes(15)))
struct ClusterWebhookTests {
  private static let keys = [
    "webhooks.allow_networks": "127.0.0.0/8", "webhooks.allow_http": "true",
    "webhooks.allow_ports": "", "cluster.lease": "3s",
    "webhooks.retry": (0..<200).map { _ in "100ms" }.joined(separator: ","),
  ]

  private static func names(_ origin: ScriptedOrigin, _ path: String) -> [String] {
    origin.requests(to: path).map { $0.header("webhook-id") ?? "" }
  }

  @Test("each message is sent once, at most two at a time per host, and every instance reports it")
  func once() async throws {
    try await Cluster.open(3, Self.keys) { cluster, origin in
      origin.on("/hook") { _ in
        ScriptedReply(
          .pause(.milliseconds(5)), .send(Array("HTTP/1.1 204 No Content\r\n\r\n".utf8)))
      }
      let hook = ["url": origin.url("/hook")]
      var ids: [String] = []
      for number in 0..<60 {
        let service = cluster[number % 3]
        ids.append(
          try await service.post(
            ["url": origin.url("/none\(number)"), "max_attempts": 1, "notify": hook]))
      }
      await origin.waitForRequests(to: "/hook", count: 60)
      for (number, id) in ids.enumerated() {
        let other = cluster[(number + 1) % 3]
        try await eventually {
          let shown = try await other.get("/jobs/\(id)/webhooks").json()
          return shown["state"] as? String == "delivered"
        }
      }
      let names = Self.names(origin, "/hook")
      #expect(names.count == 60 && Set(names).count == 60)
      #expect(origin.mostAtOnce(to: "/hook") <= 2)
    }
  }

  @Test(
    "messages of a killed instance are sent by the others, with the same ids")
  func killed() async throws {
    try await Cluster.open(3, Self.keys) { cluster, origin in
      let receiver = try ScriptedOrigin(host: "127.0.0.3")
      defer { receiver.stop() }
      receiver.on("/hook", .silent)
      let others = cluster.others(than: cluster[0])
      // While these are suspended, only the first instance sends.
      for other in others { kill(other.processIdentifier, SIGSTOP) }
      var ids: Set<String> = []
      for number in 0..<10 {
        ids.insert(
          try await cluster[0].post(
            [
              "url": origin.url("/none\(number)"), "max_attempts": 1,
              "notify": ["url": receiver.url("/hook")],
            ]))
      }
      for id in ids { _ = try await cluster[0].outcome(id) }
      await receiver.waitForRequests(to: "/hook", count: 2)
      try await cluster[0].kill()
      let tried = Set(Self.names(receiver, "/hook"))
      receiver.on("/hook", .status(200))
      for other in others { kill(other.processIdentifier, SIGCONT) }
      for id in ids {
        try await eventually {
          let shown = try await others[0].get("/jobs/\(id)/webhooks").json()
          return shown["state"] as? String == "delivered"
        }
      }
      let names = Self.names(receiver, "/hook")
      #expect(Set(names).count == 10 && tried.isSubset(of: Set(names)) && tried.count == 2)
      #expect(names.count == 12, "only messages in transit were sent twice")
    }
  }
}
