import Foundation
import FoundationNetworking
import TestSupport
import Testing

@Suite("Batches of a running service", .timeLimit(.minutes(20)))
struct BatchRunTests {
  private static let kills = ProcessInfo.processInfo.environment["LONG_TESTS"] == nil ? 3 : 50

  @Test("each line is once in the results, however often the service is killed while they come")
  func kill() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let count = 400 * Self.kills
    // Nothing is cached: each fails at once, and asks no origin.
    let defaults = "%7B%22cache%22:%22only-if-cached%22%7D"
    let target = "/batches?name=killed&defaults=\(defaults)"
    let lines = (1...count).map { "http://127.0.0.1/\($0)\n" }
    var service = try await RunningService(folder: folder)
    var id: String?
    for _ in 0..<Self.kills {
      let upload = Task { [service, id] in try await Self.send(lines, to: service, target, id) }
      try? await Task.sleep(for: .milliseconds(.random(in: 0...300)))
      try await service.kill()
      _ = try? await upload.value
      service = try await RunningService(folder: folder)
      let batches = try await service.get("/batches").json()["batches"] as? [[String: Any]]
      id = batches?.first?["id"] as? String
    }
    id = try await Self.send(lines, to: service, target, id)
    let batch = try #require(id)
    try await eventually {
      let now = try await service.get("/batches/\(batch)?wait=10").json()
      return now["state"] as? String == "finished"
    }
    let results = try await service.get("/batches/\(batch)/results?follow=true").body
    let told = String(decoding: results, as: UTF8.self).split(separator: "\n").compactMap { line in
      (try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])?["line"] as? Int
    }
    #expect(told == Array(1...count))
    let now = try await service.get("/batches/\(batch)").json()
    #expect((now["counts"] as? [String: Int])?["failure"] == count)
    #expect((now["codes"] as? [String: Int]) == ["not_cached": count])
    #expect(try await service.get("/batches").json()["next_cursor"] is NSNull)
    #expect(try await service.stop() == 0)
  }

  /// Sends what the batch has not received, once more where it has begun.
  /// - Returns: its id.
  private static func send(
    _ lines: [String], to service: RunningService, _ target: String, _ id: String?
  ) async throws -> String? {
    var (path, rest) = (target, lines[...])
    if let id {
      let batch = try await service.get("/batches/\(id)").json()
      guard batch["state"] as? String == "receiving", let received = batch["received"] as? Int
      else {
        return id
      }
      (path, rest) = ("/batches/\(id)/lines?from=\(received)", lines.dropFirst(received))
    }
    var request = URLRequest(url: URL(string: service.base + path)!)  // of ours
    request.httpMethod = "POST"
    request.setValue("text/uri-list", forHTTPHeaderField: "Content-Type")
    request.httpBody = Data(rest.joined().utf8)
    let (data, _) = try await URLSession.shared.data(for: request)
    let answer = try JSONSerialization.jsonObject(with: data) as? [String: Any]
    return answer?["id"] as? String
  }

  @Test("a cancelled batch sends nothing more within a second, however much of it is queued")
  func cancel() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let count = 3_000
    let asked = Asked()
    for number in 0..<count {
      origin.on("/\(number)") { _ in
        asked.note()
        return .dripped(Fixtures.smallPNG, size: 8, every: .milliseconds(50))
      }
    }
    let service = try await RunningService(folder: folder)
    let lines = (0..<count).map { origin.url("/\($0)") + "\n" }
    let id = try #require(
      try await Self.send(lines, to: service, "/batches", nil), "the batch was not taken")
    try await eventually { asked.count > 0 }
    let start = ContinuousClock.now
    var request = URLRequest(url: URL(string: service.base + "/batches/\(id)")!)  // of ours
    request.httpMethod = "DELETE"
    let (data, _) = try await URLSession.shared.data(for: request)
    #expect(ContinuousClock.now - start < .seconds(2))
    let answer = try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
    #expect(answer["state"] as? String == "cancelled")
    #expect((answer["counts"] as? [String: Int])?["queued"] == 0)
    try await Task.sleep(for: .seconds(1))
    let before = asked.count
    try await Task.sleep(for: .seconds(1))
    #expect(asked.count == before)
    #expect(asked.count < count / 2)
    try await eventually {
      let jobs = try await service.get("/jobs?batch=\(id)&phase=queued").json()["jobs"] as? [Any]
      return jobs?.isEmpty == true
    }
    #expect(try await service.stop() == 0)
  }
}

/// Counts requests.
private final class Asked: @unchecked Sendable {  // behind its lock
  private let lock = NSLock()
  private var requests = 0

  func note() { lock.withLock { requests += 1 } }

  var count: Int { lock.withLock { requests } }
}
