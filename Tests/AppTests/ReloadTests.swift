import Digests
import Foundation
import TestSupport
import Testing

@Suite("Configuration changes at run time")
struct ReloadTests {
  @Test("tokens are added, changed and removed at SIGHUP and when their file changes")
  func tokens() async throws {
    let file = try Self.write([Self.entry("first"), Self.entry("second", "max_priority: low")])
    defer { try? FileManager.default.removeItem(atPath: file) }
    try await withService(["IMAGEFETCH_AUTH_TOKENS_FILE": file]) { service in
      #expect(try await Self.status("first", service) == 200)
      #expect(try await Self.status("third", service) == 401)

      try Self.write([Self.entry("second"), Self.entry("third", "max_queued: 1")], to: file)
      kill(service.processIdentifier, SIGHUP)
      try await eventually { try await Self.status("third", service) == 200 }
      #expect(try await Self.status("first", service) == 401)
      try await eventually { service.log.contains("tokens reloaded") }

      // A file with a mistake changes nothing. Without a signal it is soon read again.
      try Self.write(["{name: third, scopes: [jobs]}"], to: file)
      try await eventually { service.log.contains("needs either sha256 or token_file") }
      #expect(try await Self.status("third", service) == 200)
      try Self.write([Self.entry("fourth")], to: file)
      try await eventually { try await Self.status("fourth", service) == 200 }

      // An empty list of tokens does not open the service.
      try Self.write([], to: file)
      kill(service.processIdentifier, SIGHUP)
      try await eventually { service.log.contains("requires a restart") }
      #expect(try await Self.status(nil, service) == 401)
      #expect(try await Self.status("fourth", service) == 200)
    }
  }

  @Test(
    "removing a token ends its streams and results but no other's, and cancels nothing"
  )
  func streams() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let gate = Gate()
    origin.on("/x", .held(Fixtures.png, after: 1000, by: gate))
    let (old, new) = (Self.entry("web", secret: "old"), Self.entry("web", secret: "new"))
    let file = try Self.write([old, new])
    defer { try? FileManager.default.removeItem(atPath: file) }
    try await withService(["IMAGEFETCH_AUTH_TOKENS_FILE": file]) { service in
      let (byOld, byNew) = ("Authorization: Bearer old", "Authorization: Bearer new")
      let id = try await service.post(
        ["url": origin.url("/x")], headers: ["Authorization": "Bearer old"])
      let ending = try ["/events", "/jobs/\(id)/events?cancel_on_disconnect=true"].map {
        try Listener.curl(service.base + $0, ["-H", byOld])
      }
      let going = try Listener.curl(service.base + "/events", ["-H", byNew])
      for listener in ending + [going] {
        try await eventually { listener.lines.contains("event: phase") }
      }
      let batch = try await service.send(
        "POST", "/batches?open=true",
        headers: ["Authorization": "Bearer old", "Content-Type": "text/plain"],
        body: Data("nowhere\n".utf8)
      ).json()
      let batchID = try #require(batch["id"] as? String)
      let results = try Listener.curl(
        service.base + "/batches/\(batchID)/results?follow=true", ["-H", byOld])
      try await eventually { results.lines.contains { $0.contains(#""phase":"rejected""#) } }
      try Self.write([new], to: file)
      kill(service.processIdentifier, SIGHUP)
      for listener in ending { #expect(try await listener.ended() == 0) }
      // curl does not receive the end of the results: bytes are missing, or the connection was reset.
      let status = try await results.ended()
      #expect(status == 18 || status == 56, "\(status)")
      gate.open()
      try await eventually { going.lines.contains { $0.contains(#""phase":"success""#) } }
    }
  }

  private static func status(_ secret: String?, _ service: RunningService) async throws -> Int {
    let fields = secret.map { ["Authorization": "Bearer \($0)"] } ?? [:]
    return try await service.get("/jobs", headers: fields).status
  }

  /// - Parameter secret: The token's secret. Nil: its name.
  private static func entry(
    _ name: String, secret: String? = nil, _ limits: String...
  ) -> String {
    let digest = SHA256.hash(data: Data((secret ?? name).utf8))
    let hash = digest.map { String(format: "%02x", $0) }.joined()
    let members = ["name: \(name)", "sha256: \(hash)", "scopes: [jobs]"] + limits
    return "{\(members.joined(separator: ", "))}"
  }

  @discardableResult
  private static func write(_ entries: [String], to file: String? = nil) throws -> String {
    let file = file ?? NSTemporaryDirectory() + "imagefetch-tokens-" + UUID().uuidString
    let text = entries.isEmpty ? "[]\n" : entries.map { "- \($0)\n" }.joined()
    try text.write(toFile: file, atomically: true, encoding: .utf8)
    return file
  }
}
