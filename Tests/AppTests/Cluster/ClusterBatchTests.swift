import Foundation
import TestSupport
import Testing

@Suite("Batches of instances that share a store", .timeLimit(.minutes(15)))
struct ClusterBatchTests {
  private static let keys = [
    "webhooks.allow_networks": "127.0.0.0/8", "webhooks.allow_http": "true",
    "webhooks.allow_ports": "", "cluster.lease": "3s", "jobs.workers": "4",
  ]

  private static func post(
    _ lines: [String], to service: RunningService, query: String = ""
  ) async throws -> String {
    let answer = try await service.send(
      "POST", "/batches\(query)", headers: ["Content-Type": "text/uri-list"],
      body: Data(lines.map { $0 + "\n" }.joined().utf8))
    try #require(answer.status == 202, "\(String(decoding: answer.body, as: UTF8.self))")
    return try #require(try answer.json()["id"] as? String)
  }

  private static func lines(_ body: Data) -> [[String: Any]] {
    body.split(separator: 0x0A).compactMap {
      try? JSONSerialization.jsonObject(with: $0) as? [String: Any]
    }
  }

  @Test(
    "every instance reports a batch that another one received: state, results, events and end")
  func told() async throws {
    try await Cluster.open(3, Self.keys) { cluster, origin in
      let gate = Gate()
      origin.on("/last", .held(Fixtures.jpeg, by: gate))
      origin.on("/hook", .status(204))
      for number in 0..<20 { origin.on("/\(number)", .ok(Fixtures.smallPNG)) }
      let hook = "%7B%22url%22:%22\(origin.url("/hook"))%22%7D"
      let urls = (0..<20).map { origin.url("/\($0)") } + ["none", origin.url("/last")]
      let id = try await Self.post(urls, to: cluster[0], query: "?notify=\(hook)")
      let path = "/batches/\(id)"
      for service in cluster.services {
        try await eventually {
          let counts = try await service.get(path).json()["counts"] as? [String: Int]
          return counts?["success"] == 20 && counts?["rejected"] == 1
        }
      }
      async let followed = cluster[1].get("\(path)/results?follow=true").body
      async let events = cluster[2].get("\(path)/events").body
      async let waited = cluster[0].get("\(path)?wait=30").json()["state"] as? String
      let before = Self.lines(try await cluster[2].get("\(path)/results").body)
      #expect(before.compactMap { $0["line"] as? Int } == Array(1...21))
      gate.open()
      #expect(Self.lines(try await followed).compactMap { $0["line"] as? Int } == Array(1...22))
      #expect(try await waited == "finished")
      let told = String(decoding: try await events, as: UTF8.self)
        .components(separatedBy: "\n").filter { $0.hasPrefix("data: ") }
      let last = try #require(told.last).dropFirst(6)
      let batch = try JSONSerialization.jsonObject(with: Data(last.utf8)) as? [String: Any]
      #expect(batch?["state"] as? String == "finished")
      await origin.waitForRequests(to: "/hook")
      for service in cluster.services {
        try await eventually {
          let shown = try await service.get("\(path)/webhooks").json()
          return shown["state"] as? String == "delivered"
        }
      }
      #expect(origin.requests(to: "/hook").count == 1)
    }
  }

  @Test("every instance can cancel a batch that another instance received and is loading")
  func cancelled() async throws {
    try await Cluster.open(2, Self.keys) { cluster, origin in
      for number in 0..<100 { origin.on("/\(number)", .silent) }
      let id = try await Self.post((0..<100).map { origin.url("/\($0)") }, to: cluster[0])
      try await eventually { !origin.requests.isEmpty }
      let answer = try await cluster[1].send("DELETE", "/batches/\(id)")
      #expect(try answer.json()["state"] as? String == "cancelled")
      try await Task.sleep(for: .seconds(1))
      let asked = origin.requests.count
      for service in cluster.services {
        try await eventually {
          let batch = try await service.get("/batches/\(id)").json()
          return (batch["counts"] as? [String: Int])?["cancelled"] == 100
            && batch["finished_at"] is String
        }
      }
      #expect(origin.requests.count == asked, "no job begins after a second")
    }
  }
}
