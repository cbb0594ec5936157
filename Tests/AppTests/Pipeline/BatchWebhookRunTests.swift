import Foundation
import Synchronization
import TestSupport
import Testing

@Suite("Webhooks of batches at a running service", .timeLimit(.minutes(15)))
struct BatchWebhookRunTests {
  private static let keys = [
    "webhooks.allow_networks": "127.0.0.0/8", "webhooks.allow_http": "true",
    "webhooks.allow_ports": "",
    "webhooks.retry": (0..<100).map { _ in "50ms" }.joined(separator: ","),
  ]

  /// A message that a receiver got.
  private struct Message: Decodable {
    struct Told: Decodable {
      var id: String
      var state: String?
      var counts: [String: Int]?
    }
    var type: String
    var data: Told
    var name: String?

    init(_ request: ScriptedRequest) throws {
      self = try JSONDecoder().decode(Message.self, from: Data(request.content))
      name = request.header("webhook-id")
    }
  }

  /// Submits URLs as a batch.
  /// - Returns: The batch's id.
  private static func post(
    _ lines: [String], notify: [String: Any], to service: RunningService
  ) async throws -> String {
    let defaults = ["max_attempts": 1]
    let list: [String: Any] = ["notify": notify, "defaults": defaults]
    // The members that apply to all jobs come before the jobs.
    let head = String(decoding: try JSONSerialization.data(withJSONObject: list), as: UTF8.self)
    let jobs = String(decoding: try JSONSerialization.data(withJSONObject: lines), as: UTF8.self)
    let answer = try await service.send(
      "POST", "/batches", headers: ["Content-Type": "application/json"],
      body: Data("\(head.dropLast()),\"jobs\":\(jobs)}".utf8))
    try #require(answer.status == 202, "\(String(decoding: answer.body, as: UTF8.self))")
    return try #require(try answer.json()["id"] as? String)
  }

  private static func state(_ id: String, at service: RunningService) async throws -> String? {
    try await service.get("/batches/\(id)/webhooks").json()["state"] as? String
  }

  @Test("a message is sent when all jobs have ended, again after a retry, and on demand")
  func told() async throws {
    try await withPipeline(Self.keys) { service, origin in
      origin.on("/x", .ok(Fixtures.jpeg))
      origin.on("/hook", .status(204))
      let lines = [origin.url("/x"), origin.url("/none"), "no URL"]
      let id = try await Self.post(
        lines,
        notify: ["url": origin.url("/hook"), "events": ["batch.finished", "job.success"]],
        to: service)
      try #require(await origin.waitForRequests(to: "/hook", count: 2))
      let told = try origin.requests(to: "/hook").map(Message.init)
      #expect(Set(told.map(\.type)) == ["job.success", "batch.finished"])
      let end = try #require(told.first { $0.type == "batch.finished" })
      #expect(end.data.id == id && end.data.state == "finished")
      #expect(end.data.counts?["success"] == 1 && end.data.counts?["failure"] == 1)
      #expect(end.data.counts?["rejected"] == 1)
      // The message contains the batch as the API returns it.
      let body = try #require(
        origin.requests(to: "/hook").first { (try? Message($0).type) == "batch.finished" })
      let said = try JSONSerialization.jsonObject(with: Data(body.content)) as? [String: Any]
      let batch = try await service.get("/batches/\(id)").json() as NSDictionary
      #expect(said?["data"] as? NSDictionary == batch)
      try await eventually { try await Self.state(id, at: service) == "delivered" }

      #expect(try await service.send("POST", "/batches/\(id)/webhooks/send").status == 200)
      try #require(await origin.waitForRequests(to: "/hook", count: 3))
      #expect(try Message(origin.requests(to: "/hook")[2]).name == end.name)

      let again = try await service.send(
        "POST", "/batches/\(id)/retry", headers: ["Content-Type": "application/json"],
        body: Data(#"{"codes":["origin_status"]}"#.utf8))
      #expect(again.status == 200)
      try #require(await origin.waitForRequests(to: "/hook", count: 4))
      let second = try Message(origin.requests(to: "/hook")[3])
      #expect(second.type == "batch.finished" && second.name != end.name)
      try await eventually { try await Self.state(id, at: service) == "delivered" }
      let shown = try await service.get("/batches/\(id)/webhooks").json()
      #expect((shown["earlier"] as? [Any])?.count == 1)
    }
  }

  @Test("a message is sent for a cancelled batch, but none for a purged one")
  func stopped() async throws {
    try await withPipeline(Self.keys) { service, origin in
      origin.on("/hang", .silent)
      origin.on("/hook", .status(204))
      let hook = ["url": origin.url("/hook")]
      let lines = (0..<200).map { origin.url("/hang?\($0)") }
      let purged = try await Self.post(lines, notify: hook, to: service)
      #expect(try await service.send("DELETE", "/batches/\(purged)?purge=true").status == 204)
      let id = try await Self.post(lines, notify: hook, to: service)
      #expect(try await service.send("DELETE", "/batches/\(id)").status == 200)
      try #require(await origin.waitForRequests(to: "/hook"))
      let told = try Message(origin.requests(to: "/hook")[0])
      #expect(told.data.id == id && told.data.state == "cancelled")
      #expect(told.data.counts?["cancelled"] == 200)
      try await eventually { try await Self.state(id, at: service) == "delivered" }
      #expect(origin.requests(to: "/hook").count == 1)
    }
  }

  private final class Receiver: Sendable { let isUp = Atomic(false) }

  /// The service is killed three times, and 50 times with `LONG_TESTS`.
  private static let kills = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1" ? 50 : 3

  @Test("kill -9 loses no message, and repeated messages keep their ids", .timeLimit(.minutes(30)))
  func killed() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment(Self.keys)
    let receiver = Receiver()
    origin.on("/hook") { _ in .status(receiver.isUp.load(ordering: .relaxed) ? 200 : 500) }
    var all: Set<String> = []
    for _ in 0..<Self.kills {
      let service = try await RunningService(folder: folder, settings: settings)
      var ids: [String] = []
      for _ in 0..<5 {
        let name = UUID().uuidString
        ids.append(
          try await Self.post(
            (0..<8).map { origin.url("/none/\(name)/\($0)") },
            notify: ["url": origin.url("/hook")],
            to: service))
      }
      all.formUnion(ids)
      // Some batches have ended by then, and some of their messages were sent.
      let first = try #require(ids.randomElement())
      try await eventually {
        try await service.get("/batches/\(first)").json()["state"] as? String == "finished"
      }
      try await service.kill()
    }
    receiver.isUp.store(true, ordering: .relaxed)
    let service = try await RunningService(folder: folder, settings: settings)
    for id in all {
      try await eventually { try await Self.state(id, at: service) == "delivered" }
    }
    var names: [String: Set<String>] = [:]
    for request in origin.requests(to: "/hook") {
      let message = try Message(request)
      names[message.data.id, default: []].insert(message.name ?? "")
    }
    #expect(Set(names.keys) == all && names.values.allSatisfy { $0.count == 1 })
    #expect(try await service.stop() == 0)
  }
}
