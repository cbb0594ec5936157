import Foundation
import Synchronization
import TestSupport
import Testing

/// A client that listens to events, in its own process. `lines` is what it has printed.
final class Listener: Sendable {
  private let process: ChildProcess
  private let text: Mutex<Data>

  private init(_ executable: String, _ arguments: [String]) throws {
    let pipe = Pipe()
    process = try ChildProcess(
      [executable] + arguments, output: .pipe(pipe), errors: .null, endsWithOwner: true)
    text = Mutex(Data())
    pipe.fileHandleForReading.readPieces { [weak self] piece in
      self?.text.withLock { $0.append(piece) }
    }
  }

  static func curl(_ url: String, _ arguments: [String] = []) throws -> Listener {
    try Listener("/usr/bin/curl", ["-sN", "--max-time", "100"] + arguments + [url])
  }

  /// Follows an event stream like a browser, with reconnections.
  static func eventSource(_ url: String) throws -> Listener {
    let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .appending(path: "Fixtures/event-source.py").path
    return try Listener("/usr/bin/env", ["python3", script, url])
  }

  var lines: [String] {
    let bytes = text.withLock { Array($0) }.filter { $0 != UInt8(ascii: "\r") }
    return bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
      .map { String(decoding: $0, as: UTF8.self) }
  }

  func leave() { process.signal(SIGKILL) }

  /// Waits for its end and returns its exit status.
  func ended() async throws -> Int32 {
    try await eventually { !self.process.isRunning }
    return process.wait()
  }
}

/// An event as the client parsed it.
struct Event: Decodable {
  var type: String
  var id: String
  var job: ShownJob

  /// The events that the client has received.
  static func all(_ listener: Listener) -> [Event] {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    return listener.lines.compactMap { try? decoder.decode(Event.self, from: Data($0.utf8)) }
  }
}

@Suite("Events of the service", .timeLimit(.minutes(15)))
struct EventTests {
  private let png = Fixtures.png

  @Test("curl receives a job's phases, progress, image and the end of the stream")
  func raw() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(png, after: 1000, by: gate))
      let id = try await service.post(["url": origin.url("/x")])
      let listener = try Listener.curl("\(service.base)/jobs/\(id)/events", ["-i"])
      try await eventually { listener.lines.contains("event: phase") }
      gate.open()
      #expect(try await listener.ended() == 0, "the stream ends normally")
      try await eventually {
        listener.lines.suffix(5).first == "event: phase" && listener.lines.contains("event: image")
      }
      let lines = listener.lines
      #expect(lines.first == "HTTP/1.1 200 OK")
      for field in [
        "Content-Type: text/event-stream", "Cache-Control: no-store", "X-Accel-Buffering: no",
      ] { #expect(lines.contains(field)) }
      let names = lines.filter { $0.hasPrefix("event: ") }.map { $0.dropFirst(7) }
      #expect(names.first == "phase")
      #expect(names.suffix(3) == ["progress", "image", "phase"])
      #expect(Set(names) == ["phase", "progress", "image"])
      let versions = lines.filter { $0.hasPrefix("id: ") }.compactMap { Int($0.dropFirst(4)) }
      #expect(versions == versions.sorted() && versions.count == names.count)
      let job = try await service.get("/jobs/\(id)").body
      #expect(
        lines.last { $0.hasPrefix("data: ") } == "data: " + String(decoding: job, as: UTF8.self))
    }
  }

  @Test("an event source receives all events and does not reconnect after the end")
  func eventSource() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(png, after: 1000, by: gate))
      let id = try await service.post(["url": origin.url("/x")])
      let listener = try Listener.eventSource("\(service.base)/jobs/\(id)/events")
      try await eventually { Event.all(listener).last?.job.progress.completed == 1000 }
      gate.open()
      #expect(try await listener.ended() == 0)
      try await eventually { listener.lines.contains(#"{"status": 204}"#) }
      let events = Event.all(listener)
      #expect(events.first?.type == "phase" && events.last?.type == "phase")
      #expect(events.last?.job.phase == "success")
      #expect(events.count { $0.type == "image" } == 1)
      #expect(events.allSatisfy { $0.id == "\($0.job.version)" && $0.job.id == id })
    }
  }

  @Test("a job is cancelled when its last listener that wanted this disconnects")
  func cancelOnDisconnect() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(png, after: 1000, by: gate))
      let id = try await service.post(["url": origin.url("/x")])
      let url = "\(service.base)/jobs/\(id)/events"
      let clients = try [
        Listener.curl(url + "?cancel_on_disconnect=true"),
        Listener.curl(url + "?cancel_on_disconnect=true"), Listener.curl(url),
      ]
      for client in clients { try await eventually { client.lines.contains("event: phase") } }
      clients[0].leave()
      #expect(try await clients[0].ended() != 0)
      #expect(try await service.job(id).phase == "loading")
      clients[1].leave()
      #expect(try await clients[2].ended() == 0)
      #expect(try await service.job(id).phase == "cancelled")
      gate.open()
    }
  }

  @Test("an event reports that the regular image replaced the low-data one, and ends the stream")
  func replaced() async throws {
    try await withPipeline(["network.constrained": "true"]) { service, origin in
      origin.on("/regular", .ok(png))
      origin.on("/small", .ok(Fixtures.smallPNG))
      let id = try await service.post([
        "url": origin.url("/regular"), "low_data_url": origin.url("/small"),
      ])
      let listener = try Listener.eventSource("\(service.base)/jobs/\(id)/events")
      try await eventually { Event.all(listener).last?.job.image?.variant == "low_data" }
      try await service.setConstrained(false)
      #expect(try await listener.ended() == 0)
      try await eventually { listener.lines.contains(#"{"status": 204}"#) }
      let last = try #require(Event.all(listener).last)
      #expect(last.type == "image" && last.job.image?.variant == "regular")
    }
  }

  @Test("an event source misses no end although the service restarts")
  func comesBack() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    origin.on("/x", .ok(png))
    var settings = environment([:])
    let first = try await RunningService(folder: folder, settings: settings)
    settings["IMAGEFETCH_SERVER_PORT"] = first.base.split(separator: ":").last.map(String.init)
    let listener = try Listener.eventSource("\(first.base)/events")
    let gate = Gate()
    origin.on("/held", .held(png, after: 1000, by: gate))
    let heard = try await first.post(["url": origin.url("/held")])
    try await eventually { Event.all(listener).last?.job.id == heard }
    gate.open()
    try await eventually { Event.all(listener).last?.job.phase == "success" }
    #expect(try await first.stop() == 0)
    let second = try await RunningService(folder: folder, settings: settings)
    // Most likely this job ends before the client reconnects.
    let missed = try await second.run(["url": origin.url("/x"), "cache": "no-store"])
    try await eventually {
      Event.all(listener).contains { $0.job.id == missed.id && $0.job.phase == "success" }
    }
    #expect(try await second.stop() == 0)
  }

  @Test("event streams end normally when the service stops, without a delay or a cancellation")
  func stops() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let gate = Gate()
    origin.on("/x", .held(png, after: 1000, by: gate))
    let service = try await RunningService(folder: folder, settings: environment([:]))
    let id = try await service.post(["url": origin.url("/x")])
    try await service.wait(for: id) { $0.progress.completed == 1000 }
    let clients = try (0..<10).map { number in
      try Listener.curl(
        service.base
          + (number % 2 == 0 ? "/events" : "/jobs/\(id)/events?cancel_on_disconnect=true"))
    }
    for client in clients { try await eventually { client.lines.contains("event: phase") } }
    #expect(try await service.stop() == 0)
    for client in clients { #expect(try await client.ended() == 0) }
    gate.open()
    let again = try await RunningService(folder: folder, settings: environment([:]))
    #expect(try await again.outcome(id).phase == "success")
    #expect(try await again.stop() == 0)
  }
}
