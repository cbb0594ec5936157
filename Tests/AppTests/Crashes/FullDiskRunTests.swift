import Foundation
import TestSupport
import Testing

@Suite(
  "A service with a full disk", .enabled(if: SmallDisk.isPossible),
  .timeLimit(.minutes(15)))
struct FullDiskRunTests {
  enum End: String, CaseIterable { case term, kill }

  /// A service on a disk of 96 MB, and an origin.
  private final class Place {
    let folder: String
    let disk: SmallDisk
    let origin: ScriptedOrigin
    private let settings: [String: String]

    init(_ keys: [String: String] = [:], size: String = "96m") throws {
      folder = try RunningService.makeFolder()
      disk = try SmallDisk(at: folder + "/disk", size: size)
      origin = try ScriptedOrigin()
      settings = environment(
        [
          "storage.path": folder + "/disk/data", "storage.max_bytes": "20MB",
          "storage.partials": "1MB",
        ].merging(keys) { $1 })
    }

    deinit {
      origin.stop()
      disk.unmount()
      try? FileManager.default.removeItem(atPath: folder)
    }

    func start(isReady: Bool = true) async throws -> RunningService {
      try await RunningService(folder: folder, settings: settings, isReady: isReady)
    }

    /// Returns the bytes that a file of the service uses on the disk.
    func bytes(of file: String) -> Int {
      var status = stat()
      return stat(folder + "/disk/data/" + file, &status) == 0 ? Int(status.st_blocks) * 512 : 0
    }
  }

  private static func end(_ service: RunningService, by end: End) async throws {
    switch end {
    case .term: #expect(try await service.stop() == 0)
    case .kill: try await service.kill()
    }
  }

  private static func code(_ answer: RunningService.Answer) throws -> String? {
    try answer.json()["code"] as? String
  }

  private static func purge(_ id: String, at service: RunningService) async throws -> Int {
    try await service.send("DELETE", "/jobs/\(id)?purge=true").status
  }

  @Test(
    "a service on a full disk serves, deletes and restarts, and works again with space",
    arguments: End.allCases
  )
  func filledByOthers(end: End) async throws {
    let place = try Place(["jobs.workers": "1"])
    let origin = place.origin
    // Every other image is in a file, the others are in the database.
    for number in 0..<12 {
      let base = number % 2 == 0 ? Fixtures.filedPNG : Fixtures.smallPNG
      origin.on("/\(number)", .ok(image("\(number)", from: base)))
    }
    let gate = Gate()
    origin.on("/held", .held(Fixtures.smallPNG, by: gate))
    origin.on("/later", .ok(Fixtures.smallPNG))
    var service = try await place.start()
    #expect(place.bytes(of: "reserve") > 5_000_000)
    let ids = try await service.post(batch: (0..<12).map { ["url": origin.url("/\($0)")] })
    for id in ids { #expect(try await service.outcome(id).phase == "success") }
    let held = try await service.submit(url: origin.url("/held"))
    await origin.waitForRequests(to: "/held")
    let later = try await service.submit(url: origin.url("/later"))

    try place.disk.fill()
    // Before the service notices it and shortens its log.
    #expect(place.disk.free == 0)
    try await eventually { try await service.get("/readyz").status == 503 }
    func expectNothingIsAdded() async throws {
      let refusals = [
        try await service.submit([["url": origin.url("/0")]]),
        try await service.send(
          "POST", "/batches", headers: ["Content-Type": "text/uri-list"],
          body: Data(origin.url("/0").utf8)),
        try await service.send(
          "POST", "/jobs/upload", headers: ["Content-Type": "image/png"],
          body: Data(Fixtures.smallPNG)),
      ]
      for refusal in refusals {
        #expect(try refusal.status == 503 && Self.code(refusal) == "storage_full")
      }
    }
    try await expectNothingIsAdded()
    for number in 0..<12 {
      #expect(try await service.get("/jobs/\(ids[number])/image").status == 200, "\(number)")
    }
    for id in ids[..<3] { #expect(try await Self.purge(id, at: service) == 204) }
    gate.open()
    #expect(try await service.outcome(held).isFinished)
    func expectItWaits() async throws {
      let job = try await service.get("/jobs/\(later)").json()
      #expect(job["phase"] as? String == "queued")
      #expect((job["waiting_for"] as? [String: Any])?["reason"] as? String == "storage")
    }
    try await expectItWaits()

    // Another program uses the purged space by now.
    try place.disk.fill()
    try await Self.end(service, by: end)
    service = try await place.start(isReady: false)
    #expect(try await service.get("/readyz").status == 503)
    for id in ids[3...] { #expect(try await service.get("/jobs/\(id)/image").status == 200) }
    for id in ids[3..<6] { #expect(try await Self.purge(id, at: service) == 204) }
    for id in ids[..<6] { #expect(try await service.get("/jobs/\(id)").status == 404) }
    try await expectItWaits()
    try await expectNothingIsAdded()

    place.disk.empty()
    try await eventually { try await service.get("/readyz").status == 200 }
    #expect(place.bytes(of: "reserve") > 5_000_000)
    #expect(try await service.outcome(later).phase == "success")
    let new = try await service.submit(url: origin.url("/0"))
    #expect(try await service.outcome(new).phase == "success")
    #expect(try await service.stop() == 0)
  }

  @Test("a batch's long defaults are stored once, however many lines it has")
  func longDefaults() async throws {
    let place = try Place(["jobs.workers": "1"])
    let service = try await place.start()
    let headers = Dictionary(
      uniqueKeysWithValues: (0..<7).map { ("X-\($0)", String(repeating: "h", count: 1_000)) })
    let far = (0..<8).map { place.origin.url("/\($0)" + String(repeating: "a", count: 6_000)) }
    let defaults: [String: Any] = ["headers": headers, "alternatives": far, "max_attempts": 1]
    let lines = (0..<12_000).map { place.origin.url("/\($0)") }
    // The defaults come first, because each line becomes a job as it arrives.
    let parts = try ([defaults, lines] as [Any]).map {
      String(decoding: try JSONSerialization.data(withJSONObject: $0), as: UTF8.self)
    }
    let body = Data(#"{"defaults":\#(parts[0]),"jobs":\#(parts[1])}"#.utf8)
    let answer = try await service.send(
      "POST", "/batches", headers: ["Content-Type": "application/json"], body: body)
    #expect(answer.status == 202)
    let id = try #require(try answer.json()["id"] as? String)
    // Each copy of the defaults has 55 kB: 12,000 copies would be 660 MB.
    #expect(place.bytes(of: "jobs.sqlite") + place.bytes(of: "jobs.sqlite-wal") < 50_000_000)
    #expect(try await service.send("DELETE", "/batches/\(id)?purge=true").status == 204)
    #expect(try await service.stop() == 0)
  }

  @Test("purging a batch that filled the disk frees its space", arguments: End.allCases)
  func filledByItself(end: End) async throws {
    // The reserve has its full size on this disk.
    let place = try Place(
      ["jobs.workers": "1", "jobs.max_queued_lines": "1000000"], size: "1200m")
    var service = try await place.start()
    try place.disk.fill(leaving: 140_000_000)
    let begun = try await service.send("POST", "/batches?open=true").json()
    let id = try #require(begun["id"] as? String)
    let long = String(repeating: "a", count: 7_000)
    let far = (0..<7).map { "\"\(place.origin.url("/far\($0)" + long))\"" }.joined(separator: ",")
    var (received, answer) = (0, RunningService.Answer(status: 202, headers: [:], body: Data()))
    while answer.status == 202 {
      try #require(received < 5_000, "nothing is ever refused")
      let lines = (received..<received + 100).map {
        "{\"url\":\"\(place.origin.url("/\($0)"))\",\"alternatives\":[\(far)]}\n"
      }.joined()
      answer = try await service.send(
        "POST", "/batches/\(id)/lines?from=\(received)",
        headers: ["Content-Type": "application/x-ndjson"], body: Data(lines.utf8))
      received += 100
    }
    #expect(try answer.status == 503 && Self.code(answer) == "storage_full")
    #expect(place.disk.free > 0)
    try place.disk.fill()
    try await Self.end(service, by: end)
    service = try await place.start(isReady: false)
    #expect(try await service.send("DELETE", "/batches/\(id)?purge=true").status == 204)
    // The batch's space is free again, although another program uses the rest of the disk.
    try await eventually { place.disk.free > 60_000_000 }
    try await eventually { try await service.get("/readyz").status == 200 }
    place.origin.on("/x", .ok(Fixtures.smallPNG))
    // The log of the deletions may fill the disk again for a moment.
    var new = try await service.submit(["url": place.origin.url("/x")])
    try await eventually {
      if new.status == 503 { new = try await service.submit(["url": place.origin.url("/x")]) }
      return new.status == 202
    }
    let job = try #require(try new.json()["id"] as? String)
    #expect(try await service.outcome(job).phase == "success")
    #expect(try await service.stop() == 0)
  }
}
