import Foundation
import FoundationNetworking
import TestSupport
import Testing

@Suite("Batches of a running service", .timeLimit(.minutes(20)))
struct BatchRunTests {
  private static let kills = ProcessInfo.processInfo.environment["LONG_TESTS"] == nil ? 3 : 50

  @Test(
    "each line occurs once in the results, however often the service is killed"
  )
  func kill() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/a.png", .ok(Fixtures.smallPNG))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let count = 200 * Self.kills
    // Most lines are fetched; some fail at once, and some are invalid.
    let lines = (1...count).map { line in
      let url = origin.url("/a.png?\(line)")
      if line.isMultiple(of: 40) { return "nowhere\n" }
      if line.isMultiple(of: 10) { return #"{"url":"\#(url)","cache":"only-if-cached"}"# + "\n" }
      return "\"\(url)\"\n"
    }
    var service = try await RunningService(folder: folder)
    var told: [Int] = []
    let begun = try await service.send("POST", "/batches?open=true").json()
    let id = try #require(begun["id"] as? String)
    for round in 1...Self.kills {
      let upload = Task { [service] in
        try await Self.send(lines.prefix(200 * round), to: service, id)
      }
      let reader = try Self.reader(of: id, from: told.count, at: service, in: folder)
      try? await Task.sleep(for: .milliseconds(.random(in: 0...900)))
      if round == Self.kills, told.isEmpty {
        try await eventually { !Self.lines(in: Data(reader.outputSoFar.utf8)).isEmpty }
      }
      try await service.kill()
      _ = try? await upload.value
      told += Self.lines(in: try await reader.ended().output)
      try #require(told == told.indices.map { $0 + 1 }, "after kill \(round)")
      service = try await RunningService(folder: folder)
    }
    #expect(!told.isEmpty)
    try await Self.send(lines[...], to: service, id)
    #expect(try await service.send("POST", "/batches/\(id)/close").status == 200)
    let reader = try Self.reader(of: id, from: told.count, at: service, in: folder)
    told += Self.lines(in: try await reader.ended().output)
    #expect(told == Array(1...count))
    let now = try await service.get("/batches/\(id)").json()
    #expect(now["state"] as? String == "finished")
    let counts = try #require(now["counts"] as? [String: Int])
    let (rejected, failed) = (count / 40, count / 10 - count / 40)
    #expect(counts["rejected"] == rejected && counts["failure"] == failed, "\(counts)")
    #expect(counts["success"] == count - count / 10)
    #expect((now["codes"] as? [String: Int]) == ["not_cached": failed])
    // A later reader receives the same results.
    let results = try await service.get("/batches/\(id)/results").body
    #expect(Self.lines(in: results) == Array(1...count))
    #expect(try await service.get("/batches").json()["next_cursor"] is NSNull)
    #expect(try await service.stop() == 0)
  }

  /// Reads the results after a number of lines, until the last line or the end of the service.
  private static func reader(
    of id: String, from count: Int, at service: RunningService, in folder: String
  ) throws -> GetCommand {
    let url = "\(service.base)/batches/\(id)/results?follow=true&from=\(count + 1)"
    return try GetCommand([], in: folder, command: ["curl", "-sN", url])
  }

  /// The line numbers in the results. An incomplete line does not count.
  private static func lines(in results: Data) -> [Int] {
    results.split(separator: 0x0A).compactMap { line in
      let result = try? JSONSerialization.jsonObject(with: line) as? [String: Any]
      return result?["line"] as? Int
    }
  }

  /// Sends the lines that the batch has not received.
  private static func send(
    _ lines: ArraySlice<String>, to service: RunningService, _ id: String
  ) async throws {
    let batch = try await service.get("/batches/\(id)").json()
    let received = try #require(batch["received"] as? Int)
    guard received < lines.count else { return }
    let answer = try await service.send(
      "POST", "/batches/\(id)/lines?from=\(received)",
      headers: ["Content-Type": "application/x-ndjson"],
      body: Data(lines.dropFirst(received).joined().utf8))
    #expect(answer.status == 202)
  }

  @Test("a cancelled batch sends no request after one second, however many lines are queued")
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
      try await service.send(
        "POST", "/batches", headers: ["Content-Type": "text/uri-list"],
        body: Data(lines.joined().utf8)
      ).json()["id"] as? String)
    try await eventually { asked.count > 0 }
    let start = ContinuousClock.now
    var request = URLRequest(url: URL(string: service.base + "/batches/\(id)")!)  // valid
    request.httpMethod = "DELETE"
    let (data, _) = try await URLSession.shared.data(for: request)
    // Allows for a busy machine. All lines together would take minutes.
    #expect(ContinuousClock.now - start < .seconds(20))
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
private final class Asked: @unchecked Sendable {  // `lock` protects the count
  private let lock = NSLock()
  private var requests = 0

  func note() { lock.withLock { requests += 1 } }

  var count: Int { lock.withLock { requests } }
}
