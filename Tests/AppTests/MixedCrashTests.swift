import Foundation
import Synchronization
import TestSupport
import Testing

/// Everything at once, and `kill -9` at moments that nobody chose.
@Suite("A service that is killed again and again", .timeLimit(.minutes(30)))
struct MixedCrashTests {
  /// In the suite it is killed 20 times, with `LONG_TESTS` 200.
  private static let kills = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1" ? 200 : 20
  private static let clients = 4

  @Test(
    "under uploads, batches, cancels, purges, webhooks and variants keeps what it acknowledged, ends it once, and leaves no orphan"
  )
  func kill() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/hook", .status(204))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment([
      "jobs.workers": "8", "fetch.max_per_host": "8", "webhooks.allow_networks": "127.0.0.0/8",
      "webhooks.allow_http": "true", "webhooks.allow_ports": "",
      "webhooks.retry": (0..<50).map { _ in "50ms" }.joined(separator: ","),
    ])
    let load = MixedLoad(origin)
    for round in 0..<Self.kills {
      let service = try await RunningService(folder: folder, settings: settings)
      await withTaskGroup { group in
        for client in 0..<Self.clients {
          group.addTask { await load.go(on: service, client + round * Self.clients) }
        }
        group.addTask {
          try? await Task.sleep(for: .milliseconds(.random(in: 20...400)))
          try? await service.kill()
        }
      }
      try #require(!service.isRunning)
    }
    let service = try await RunningService(folder: folder, settings: settings)
    try await load.settle(on: service)
    print("\(Self.kills) kills: \(load.summary)")
    try await load.expectNothingLost(on: service)
    try await Self.expectNoOrphan(of: service)
    #expect(try await service.stop() == 0)
  }

  /// A file for each image of more than 64 KiB, or uploaded, that some job has, and no other, once nothing else may refer to one: the
  /// cache, and uploads whose jobs were cancelled.
  private static func expectNoOrphan(of service: RunningService) async throws {
    for phase in ["cancelled", "failure"] {
      for id in try await service.all(phase) {
        #expect(try await service.send("DELETE", "/jobs/\(id)?purge=true").status < 300)
      }
    }
    #expect(try await service.send("DELETE", "/cache").status < 300)
    var filed: Set<String> = []
    for id in try await service.all("success") {
      let job = try await service.job(id)
      if let image = job.image, image.bytes > 64 << 10 || job.source.url == nil {
        filed.insert(image.sha256)
      }
    }
    // The sweep goes on beside the work, and what was purged is removed after its answer.
    var files: [String] = []
    try await eventually {
      files = try FileManager.default.images(below: service.folder)
      return files.count <= filed.count
    }
    #expect(files.count == filed.count)
    let metrics = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
    #expect(metrics.contains(#"imagefetch_jobs{phase="loading"} 0"#))
    #expect(metrics.contains(#"imagefetch_jobs{phase="queued"} 0"#))
  }
}

/// Clients that do whatever clients do, and remember what they were promised.
private final class MixedLoad: Sendable {
  /// What was promised of a job.
  private struct Promise {
    /// Its image, where it has one.
    var bytes: [UInt8]?
    /// Somebody asked for it to be cancelled: it may be, or may have ended before.
    var mayBeCancelled = false
    /// Somebody asked for it to be purged: it may be gone.
    var mayBeGone = false
    /// That was answered.
    var isGone = false
    var isTold = false
  }

  /// A job that is submitted, under a key.
  private struct Asked {
    var key: String
    var body: Data
    var bytes: [UInt8]?
    var isTold: Bool
  }

  private struct State {
    var promises: [String: Promise] = [:]
    /// Of a batch how many lines it was told to have.
    var batches: [String: Int] = [:]
    /// What was asked under a key and not answered yet.
    var unanswered: [Asked] = []
    var number = 0
  }

  private let origin: ScriptedOrigin
  private let state = Mutex(State())

  init(_ origin: ScriptedOrigin) { self.origin = origin }

  var summary: String {
    state.withLock { "\($0.promises.count) jobs acknowledged, \($0.batches.count) batches" }
  }

  /// Asks one thing after the other until nobody answers.
  func go(on service: RunningService, _ client: Int) async {
    do {
      while let again = state.withLock({ $0.unanswered.popLast() }) {
        try await submit(again, on: service)
      }
      while service.isRunning {
        switch Int.random(in: 0..<12) {
        case 0: try await upload(to: service)
        case 1: try await sendBatch(to: service)
        case 2, 3: try await change(on: service, purging: false)
        case 4: try await change(on: service, purging: true)
        case 5: _ = try await service.get("/jobs?limit=20")
        default: try await submit(on: service)
        }
      }
    } catch {
      // It was killed meanwhile: what it did not answer, it did not promise.
    }
  }

  private func nextNumber() -> Int {
    state.withLock { state in
      state.number += 1
      return state.number
    }
  }

  /// Bytes of its own; every fifth lies in a file.
  private func picture(_ number: Int) -> [UInt8] {
    image("\(number)", from: number % 5 == 0 ? Fixtures.filedPNG : Fixtures.smallPNG)
  }

  private func submit(on service: RunningService) async throws {
    let number = nextNumber()
    var body: [String: Any] = ["url": origin.url("/\(number)"), "tags": ["t\(number % 3)"]]
    var bytes: [UInt8]? = picture(number)
    switch number % 7 {
    case 0:
      origin.on("/\(number)", .status(404))
      bytes = nil
    case 1, 2:
      let size = max(1, bytes!.count / 3)
      origin.on("/\(number)", .dripped(bytes!, size: size, every: .milliseconds(30)))
    default: origin.on("/\(number)", .ok(bytes!))
    }
    if number % 3 == 0 { body["variants"] = [["width": 4, "format": "png"]] }
    if number % 4 == 0 { body["notify"] = ["url": origin.url("/hook")] }
    let asked = Asked(
      key: "key-\(number)", body: try JSONSerialization.data(withJSONObject: body), bytes: bytes,
      isTold: body["notify"] != nil)
    try await submit(asked, on: service)
  }

  private func submit(_ asked: Asked, on service: RunningService) async throws {
    do {
      let answer = try await service.send(
        "POST", "/jobs",
        headers: ["Content-Type": "application/json", "Idempotency-Key": asked.key],
        body: asked.body)
      guard (200..<300).contains(answer.status), let id = try answer.json()["id"] as? String else {
        return
      }
      promise(id, Promise(bytes: asked.bytes, isTold: asked.isTold))
    } catch {
      // Perhaps it was taken: asked again under its key it is the same one.
      state.withLock { $0.unanswered.append(asked) }
      throw error
    }
  }

  private func promise(_ id: String, _ promise: Promise) {
    state.withLock { state in if state.promises[id] == nil { state.promises[id] = promise } }
  }

  private func upload(to service: RunningService) async throws {
    let bytes = picture(nextNumber())
    let answer = try await service.send(
      "POST", "/jobs", headers: ["Content-Type": "image/png"], body: Data(bytes))
    guard answer.status == 202, let id = try answer.json()["id"] as? String else { return }
    promise(id, Promise(bytes: bytes))
  }

  private func sendBatch(to service: RunningService) async throws {
    let numbers = (0..<20).map { _ in nextNumber() }
    for number in numbers.prefix(3) { origin.on("/\(number)", .ok(picture(number))) }
    let list = numbers.map { origin.url("/\($0)") + "\n" }.joined()
    let answer = try await service.send(
      "POST", "/batches", headers: ["Content-Type": "text/uri-list"], body: Data(list.utf8))
    guard (200..<300).contains(answer.status), let id = try answer.json()["id"] as? String else {
      return
    }
    state.withLock { $0.batches[id] = numbers.count }
  }

  private func change(on service: RunningService, purging: Bool) async throws {
    let id = state.withLock { state in
      let id = state.promises.keys.randomElement()
      if let id {
        state.promises[id]?.mayBeCancelled = true
        if purging { state.promises[id]?.mayBeGone = true }
      }
      return id
    }
    guard let id else { return }
    let answer = try await service.send("DELETE", "/jobs/\(id)\(purging ? "?purge=true" : "")")
    if purging, (200..<300).contains(answer.status) {
      state.withLock { $0.promises[id]?.isGone = true }
    }
  }

  // MARK: What came of it

  /// Waits for the end of all that there is, acknowledged or not.
  func settle(on service: RunningService) async throws {
    for (id, count) in state.withLock({ $0.batches }) {
      try await eventually {
        let batch = try await service.get("/batches/\(id)?wait=10").json()
        return batch["state"] as? String == "finished" && batch["received"] as? Int == count
      }
    }
    for phase in ["queued", "loading"] {
      try await eventually { try await service.all(phase).isEmpty }
    }
  }

  func expectNothingLost(on service: RunningService) async throws {
    var messages: [String: Set<String>] = [:]
    func hear() throws {
      for request in origin.requests(to: "/hook") {
        let json = try JSONSerialization.jsonObject(with: Data(request.content)) as? [String: Any]
        let id = (json?["data"] as? [String: Any])?["id"] as? String
        messages[id ?? "", default: []].insert(request.header("webhook-id") ?? "")
      }
    }
    for (id, promise) in state.withLock({ $0.promises }) {
      let answer = try await service.get("/jobs/\(id)")
      if promise.isGone {
        #expect(answer.status == 404, "\(id) was purged")
        continue
      }
      if answer.status == 404, promise.mayBeGone { continue }
      try #require(answer.status == 200, "\(id) is lost")
      let phase = try answer.json()["phase"] as? String
      switch phase {
      case "success":
        #expect(try await service.image(of: id) == promise.bytes, "\(id) has other bytes")
      case "failure": #expect(promise.bytes == nil, "\(id): \(answer.body.count)")
      case "cancelled": #expect(promise.mayBeCancelled, "\(id)")
      default: Issue.record("\(id) is \(phase ?? "nothing")")
      }
      guard promise.isTold, !promise.mayBeGone else { continue }
      try await eventually {
        if messages[id] == nil { try hear() }
        return messages[id] != nil
      }
    }
    try hear()
    // Sent once or more, each time as the same message: there was one end.
    #expect(messages.values.allSatisfy { $0.count == 1 })
  }
}
