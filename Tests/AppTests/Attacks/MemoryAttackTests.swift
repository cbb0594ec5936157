import Foundation
import Synchronization
import TestSupport
import Testing

/// One client creates objects whose lifetime an outside party decides: a slow origin, a slow receiver or a
/// slow client. The service must not use much memory for them, and must not delay another client's uploads.
@Suite("A client that tries to use all memory", .timeLimit(.minutes(10)), .serialized)
struct MemoryAttackTests {
  private static let isLong = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"
  /// The most memory of the service in MiB, without its decoders. AddressSanitizer retains 256 MiB of freed
  /// memory.
  private static let mostMegabytes = Sanitizer.isHere ? 900 : 400
  /// The longest time for an upload of the other client at the 99th percentile. `make test-long` with a release build
  /// (`TESTED_EXECUTABLE`) allows 1 s. Other runs use a debug build next to other tests, where SQLite's one thread is busy
  /// with the lines of a batch.
  private static let mostLatency = isLong && isRelease ? Duration.seconds(1) : .seconds(30)
  private static let isRelease = ProcessInfo.processInfo.environment["TESTED_EXECUTABLE"] != nil

  @Test("equal lines with long defaults and a slow origin use little memory")
  func equalLines() async throws {
    let (count, gate) = (Self.isLong ? 30_000 : 10_000, Gate())
    try await Self.withVictim { service, origin, _ in
      origin.on("/x", .held(Self.small, by: gate))
      defer { gate.open() }
      let line = #"{"url":"\#(origin.url("/x"))"}"# + "\n"
      let lines =
        #"{"defaults":\#(Self.longMembers(origin))}"# + "\n"
        + String(repeating: line, count: count)
      let answer = try await service.send(
        "POST", "/batches", headers: anna.merging(["Content-Type": "application/x-ndjson"]) { $1 },
        body: Data(lines.utf8))
      #expect(answer.status == 202)
      try await Self.watch(.seconds(Self.isLong ? 30 : 8))
      gate.open()
      try await eventually { try await Self.jobs("success", at: service) >= count }
    }
  }

  @Test("jobs of one URL with different large variants use little memory")
  func variants() async throws {
    try await Self.withVictim { service, origin, _ in
      origin.on("/x", .ok(Self.large))
      let count = Self.isLong ? 64 : 16
      let jobs = (0..<count).map { number -> [String: Any] in
        ["url": origin.url("/x"), "variants": Self.variants(number)]
      }
      let answer = try await service.send(
        "POST", "/jobs", headers: anna.merging(["Content-Type": "application/json"]) { $1 },
        body: JSONSerialization.data(withJSONObject: jobs))
      #expect(answer.status == 202)
      try await eventually { try await Self.jobs("success", at: service) >= count }
    }
  }

  @Test("uploads with large variants for a slow receiver use little memory")
  func deliveries() async throws {
    try await Self.withVictim { service, origin, _ in
      let count = Self.isLong ? 64 : 8
      let slow = String(repeating: "a", count: 60)
      let drip = Array("HTTP/1.1 200 OK\r\nX-Slow: \(slow)\r\n\r\n".utf8)
      origin.on("/put", ScriptedReply(.drip(drip, size: 1, every: .milliseconds(500)), .close))
      for number in 0..<count {
        let members: [String: Any] = [
          "variants": Self.variants(number),
          "deliver": [["put": origin.url("/put"), "what": "v0"]],
        ]
        let answer = try await service.upload(Self.large, members, headers: anna)
        #expect(answer.status == 202)
      }
      // Each of them has a running transfer or waits for one.
      await origin.waitForRequests(to: "/put")
      try await Self.watch(.seconds(Self.isLong ? 60 : 10))
    }
  }

  @Test("GETs of different variants whose clients read nothing use little memory")
  func unreadVariants() async throws {
    try await Self.withVictim { service, origin, port in
      origin.on("/x", .ok(Self.large))
      let job = try await service.run(["url": origin.url("/x")], headers: anna)
      #expect(job.phase == "success", "\(job.summary)")
      let before = try service.residentMegabytes()
      var clients: [RawConnection] = []
      for number in 0..<(Self.isLong ? 256 : 32) {
        let client = try RawConnection(port)
        client.send(
          """
          GET /jobs/\(job.id)/image?width=\(Self.width - 1 - number)&format=jpeg&quality=100 HTTP/1.1\r
          Host: localhost\r\nAuthorization: Bearer alpha\r\n\r\n
          """)
        clients.append(client)
      }
      let unread = clients
      let areAnswered = await withCheckedContinuation { continuation in
        Thread.detachNewThread {
          // Each check takes up to ten seconds.
          let answers = unread.map { client in (0..<12).contains { _ in client.isAnswered } }
          continuation.resume(returning: !answers.contains(false))
        }
      }
      #expect(areAnswered)
      // The unread bytes are about 3 MiB per client.
      let more = try service.residentMegabytes() - before
      #expect(Sanitizer.isHere || more < 64, "\(more) MiB more")
      withExtendedLifetime(clients) {}
    }
  }
}

extension MemoryAttackTests {
  private static let small = image("x")
  private static let width = 1_200

  /// A PNG of noise, whose variants are about as large as the PNG.
  private static let large: [UInt8] = {
    var state: UInt64 = 0x9E37_79B9_7F4A_7C15
    let row = 1 + 3 * width
    let words = [UInt64](unsafeUninitializedCapacity: row * width / 8 + 1) { buffer, count in
      for place in buffer.indices {
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        buffer[place] = state
      }
      count = buffer.count
    }
    var rows = words.withUnsafeBytes { Array($0.prefix(row * width)) }
    // The filter byte of each row.
    for start in stride(from: 0, to: rows.count, by: row) { rows[start] = 0 }
    let png = PNGFixture(width: UInt32(width), height: UInt32(width))
    return png.start + PNGFixture.chunk("IDAT", PNGFixture.zlib(rows)) + png.end
  }()

  /// Eight large variants that differ for each number.
  private static func variants(_ number: Int) -> [[String: Any]] {
    (0..<8).map { place in
      [
        "name": "v\(place)", "width": width - 1 - number, "format": "jpeg",
        "quality": 93 + place,
      ]
    }
  }

  /// Members of about 64 kB as JSON.
  private static func longMembers(_ origin: ScriptedOrigin) -> String {
    let text = String(repeating: "a", count: 7_800)
    let urls = (0..<7).map { #""\#(origin.url("/\($0)\(text)"))""# }
    return #"{"alternatives":[\#(urls.joined(separator: ","))],"headers":{"X-Long":"\#(text)"}}"#
  }

  private static func jobs(_ phase: String, at service: RunningService) async throws -> Int {
    let metrics = try await service.get("/metrics", headers: anna).body
    let name = "imagefetch_jobs{phase=\"\(phase)\"} "
    let line = String(decoding: metrics, as: UTF8.self).split(separator: "\n")
      .first { $0.hasPrefix(name) }
    return Int(Double(line?.dropFirst(name.count) ?? "0") ?? 0)
  }

  /// Lets the attack continue for a while.
  private static func watch(_ time: Duration) async throws { try await Task.sleep(for: time) }

  /// Runs an attack by the client anna, while bert uploads small images one after the other.
  private static func withVictim(
    _ attack: (RunningService, ScriptedOrigin, _ port: Int) async throws -> Void
  ) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let keys = ["fetch.stall_timeout": "60s", "fetch.timeout": "120s"].merging(twoOwners) { $1 }
    let service = try await RunningService(
      folder: folder, settings: environment(keys), program: try limited(in: folder))
    let port = try #require(service.base.split(separator: ":").last.flatMap { Int($0) })
    let end = End()
    let victim = Task { try await Self.uploads(at: service, until: end) }
    do { try await attack(service, origin, port) } catch {
      end.hasCome.withLock { $0 = true }
      _ = await victim.result
      throw error
    }
    end.hasCome.withLock { $0 = true }
    let latencies = try await victim.value.sorted()
    let slowest = try #require(latencies.last)
    let p99 = latencies[latencies.count * 99 / 100]
    #expect(p99 <= mostLatency, "\(latencies.count) uploads, the slowest took \(slowest)")
    let most = try service.mostResidentMegabytes()
    print("\(latencies.count) uploads: p99 \(p99), slowest \(slowest); at most \(most) MiB")
    #expect(most <= mostMegabytes, "\(most) MiB")
    try await service.kill()
  }

  /// Whether the attack has ended.
  private final class End: Sendable {
    let hasCome = Mutex(false)
  }

  /// Returns how long each upload took, until the attack has ended.
  private static func uploads(
    at service: RunningService, until end: End
  ) async throws -> [Duration] {
    var latencies: [Duration] = []
    repeat {
      let start = ContinuousClock.now
      var answer = try await service.upload(small, [:], headers: bert)
      // A client repeats an upload that is refused temporarily. Together they count as one slow upload.
      while answer.status == 503 {
        try? await Task.sleep(for: .milliseconds(100))
        answer = try await service.upload(small, [:], headers: bert)
      }
      let job = try answer.json()
      #expect(answer.status == 202)
      let id = try #require(job["id"] as? String)
      #expect(try await service.outcome(id, headers: bert).phase == "success")
      latencies.append(start.duration(to: .now))
      try await Task.sleep(for: .milliseconds(50))
    } while !end.hasCome.withLock { $0 }
    return latencies
  }

  /// The executable with a limit of 1 GiB of data. Beyond the limit it would crash.
  private static func limited(in folder: String) throws -> String {
    guard !Sanitizer.isHere else { return RunningService.executable }
    let path = folder + "/limited"
    let script = "#!/bin/sh\nulimit -d \(1 << 20)\nexec '\(RunningService.executable)' \"$@\"\n"
    try script.write(toFile: path, atomically: true, encoding: .utf8)
    try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
    return path
  }
}

extension RunningService {
  /// Uploads an image with these members of its job.
  fileprivate func upload(
    _ image: [UInt8], _ members: [String: Any], headers: [String: String]
  ) async throws -> Answer {
    let boundary = "boundary-of-parts"
    var body = Data("--\(boundary)\r\n".utf8)
    body += Data("Content-Disposition: form-data; name=\"options\"\r\n\r\n".utf8)
    body += try JSONSerialization.data(withJSONObject: members)
    body += Data("\r\n--\(boundary)\r\n".utf8)
    body += Data("Content-Disposition: form-data; name=\"image\"; filename=\"x\"\r\n\r\n".utf8)
    body += Data(image) + Data("\r\n--\(boundary)--\r\n".utf8)
    let type = "multipart/form-data; boundary=\(boundary)"
    return try await send(
      "POST", "/jobs", headers: headers.merging(["Content-Type": type]) { $1 }, body: body)
  }
}
