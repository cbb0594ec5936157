import Foundation
import Synchronization
import TestSupport
import Testing

/// Clients with a mixed load. They record what the service acknowledged, and when.
final class MixedLoad: Sendable {
  /// The settings of a service for this load.
  static let settings = environment([
    "jobs.workers": "8", "fetch.max_per_host": "8", "webhooks.allow_networks": "127.0.0.0/8",
    "webhooks.allow_http": "true", "webhooks.allow_ports": "",
    "webhooks.retry": (0..<50).map { _ in "50ms" }.joined(separator: ","),
  ])

  /// A moment in the service's life: the size of the record at that time.
  typealias Moment = Int
  private static let never = Moment.max
  /// After everything that happens.
  static let theEnd = Moment.max - 1

  /// What the service acknowledged about a job.
  private struct Promise {
    var made: Moment
    /// The expected image, if the job has one.
    var bytes: [UInt8]?
    var isTold: Bool
    /// When a cancel was requested. From then on the job may be cancelled, or may have ended before.
    var cancelAsked = MixedLoad.never
    /// When a purge was requested. From then on the job may be gone.
    var purgeAsked = MixedLoad.never
    /// When the purge was answered.
    var purged = MixedLoad.never
    var end: End?
  }

  /// How a job had ended when a client saw it.
  private struct End {
    var seen: Moment
    var phase: String
    var finished: String
  }

  /// A submission with its idempotency key.
  private struct Asked {
    var key: String
    var body: Data
    var bytes: [UInt8]?
    var isTold: Bool
  }

  /// A received webhook message.
  private struct Heard {
    var job: String
    var id: String
    var life: Int
    var moment: Moment
  }

  private struct State {
    var promises: [String: Promise] = [:]
    /// The number of lines that each batch was acknowledged with, and when.
    var batches: [String: (lines: Int, made: Moment)] = [:]
    /// The submissions that were not answered yet.
    var unanswered: [Asked] = []
    var number = 0
    var heard: [Heard] = []
    var life = 0
  }

  private let origin: ScriptedOrigin
  private let moment: @Sendable () -> Moment
  private let state = Mutex(State())

  /// - Parameter moment: Returns the current moment. By default everything counts.
  init(_ origin: ScriptedOrigin, moment: @escaping @Sendable () -> Moment = { 0 }) {
    self.origin = origin
    self.moment = moment
    origin.on("/hook") { [weak self] request in
      self?.hear(request)
      return .status(204)
    }
  }

  /// The number of jobs acknowledged so far.
  var acknowledged: Int { state.withLock { $0.promises.count } }

  var summary: String {
    state.withLock { "\($0.promises.count) jobs acknowledged, \($0.batches.count) batches" }
  }

  /// Runs four clients, each with one request at a time, until the service no longer responds. `end` must
  /// make it stop.
  func go(on service: RunningService, until end: @escaping @Sendable () async -> Void) async {
    await withTaskGroup { group in
      for _ in 0..<4 { group.addTask { await self.ask(service) } }
      group.addTask { await end() }
    }
  }

  private func ask(_ service: RunningService) async {
    do {
      while let again = state.withLock({ $0.unanswered.popLast() }) {
        try await submit(again, on: service)
      }
      while service.isRunning {
        switch Int.random(in: 0..<14) {
        case 0: try await upload(to: service)
        case 1: try await sendBatch(to: service)
        case 2, 3: try await change(on: service, purging: false)
        case 4: try await change(on: service, purging: true)
        case 5: _ = try await service.get("/jobs?limit=20")
        case 6, 7: try await look(at: service)
        default: try await submit(on: service)
        }
      }
    } catch {
      // The service was killed. A request without a response promises nothing.
    }
  }

  private func nextNumber() -> Int {
    state.withLock { state in
      state.number += 1
      return state.number
    }
  }

  /// A unique image. Every fifth one is stored in a file.
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
      promise(id, asked.bytes, isTold: asked.isTold)
    } catch {
      // The service may have accepted it. A repetition with the same key returns the same job.
      state.withLock { $0.unanswered.append(asked) }
      throw error
    }
  }

  private func promise(_ id: String, _ bytes: [UInt8]?, isTold: Bool) {
    let made = moment()
    state.withLock { state in
      if state.promises[id] == nil {
        state.promises[id] = Promise(made: made, bytes: bytes, isTold: isTold)
      }
    }
  }

  private func upload(to service: RunningService) async throws {
    let bytes = picture(nextNumber())
    let answer = try await service.send(
      "POST", "/jobs", headers: ["Content-Type": "image/png"], body: Data(bytes))
    guard answer.status == 202, let id = try answer.json()["id"] as? String else { return }
    promise(id, bytes, isTold: false)
  }

  private func sendBatch(to service: RunningService) async throws {
    let numbers = (0..<8).map { _ in nextNumber() }
    for number in numbers.prefix(3) { origin.on("/\(number)", .ok(picture(number))) }
    let list = numbers.map { origin.url("/\($0)") + "\n" }.joined()
    let answer = try await service.send(
      "POST", "/batches", headers: ["Content-Type": "text/uri-list"], body: Data(list.utf8))
    guard (200..<300).contains(answer.status), let id = try answer.json()["id"] as? String else {
      return
    }
    let made = moment()
    state.withLock { $0.batches[id] = (numbers.count, made) }
  }

  private func change(on service: RunningService, purging: Bool) async throws {
    let asked = moment()
    let id = state.withLock { state in
      let id = state.promises.keys.randomElement()
      if let id {
        state.promises[id]!.cancelAsked = min(state.promises[id]!.cancelAsked, asked)
        if purging { state.promises[id]!.purgeAsked = min(state.promises[id]!.purgeAsked, asked) }
      }
      return id
    }
    guard let id else { return }
    let answer = try await service.send("DELETE", "/jobs/\(id)\(purging ? "?purge=true" : "")")
    if purging, (200..<300).contains(answer.status) {
      let purged = moment()
      state.withLock { $0.promises[id]!.purged = min($0.promises[id]!.purged, purged) }
    }
  }

  /// Records how a job has ended, if it has.
  private func look(at service: RunningService) async throws {
    let open = state.withLock { state in
      state.promises.filter { $0.value.end == nil }.keys.randomElement()
    }
    guard let open else { return }
    let answer = try await service.get("/jobs/\(open)")
    guard answer.status == 200, let end = try end(answer) else { return }
    state.withLock { $0.promises[open]!.end = end }
  }

  private func end(_ answer: RunningService.Answer) throws -> End? {
    let job = try answer.json()
    guard let phase = job["phase"] as? String, let finished = job["finished_at"] as? String else {
      return nil
    }
    return End(seen: moment(), phase: phase, finished: finished)
  }

  private func hear(_ request: ScriptedRequest) {
    let now = moment()
    let json = try? JSONSerialization.jsonObject(with: Data(request.content)) as? [String: Any]
    let job = (json?["data"] as? [String: Any])?["id"] as? String
    state.withLock { state in
      let id = request.header("webhook-id") ?? ""
      state.heard.append(Heard(job: job ?? "", id: id, life: state.life, moment: now))
    }
  }
}

/// Checks.
extension MixedLoad {
  /// Begins a new run of the service, which continues from an earlier moment.
  func beginAnotherLife() async throws {
    // By then, everything that the ended service had sent has arrived.
    try await eventually { origin.openConnections == 0 }
    state.withLock { $0.life += 1 }
  }

  /// Waits until all jobs have ended, acknowledged or not.
  func settle(on service: RunningService) async throws {
    for phase in ["queued", "loading"] {
      try await eventually { try await service.all(phase).isEmpty }
    }
  }

  /// Returns the promises made until a moment that are not kept. Call it when all jobs have ended.
  /// - Parameter failures: Codes that jobs may have failed with, whatever their expected result.
  func losses(
    on service: RunningService, since then: Moment = MixedLoad.theEnd, failures: Set<String> = []
  ) async throws -> [String] {
    var losses: [String] = []
    for (id, batch) in state.withLock({ $0.batches }) where batch.made <= then {
      let shown = try await service.get("/batches/\(id)?wait=10").json()
      let isWhole = shown["received"] as? Int == batch.lines
      if !isWhole || shown["state"] as? String != "finished" { losses.append("batch \(id)") }
    }
    let promises = state.withLock { $0.promises.filter { $0.value.made <= then } }
    await withTaskGroup { group in
      var rest = promises.makeIterator()
      for _ in 0..<8 {
        if let (id, promise) = rest.next() {
          group.addTask { await self.loss(of: id, promise, on: service, then, failures) }
        }
      }
      while let loss = await group.next() {
        if let loss { losses.append(loss) }
        if let (id, promise) = rest.next() {
          group.addTask { await self.loss(of: id, promise, on: service, then, failures) }
        }
      }
    }
    // A message may arrive several times, but always with the same id, because a job ends once.
    for (job, ids) in messages(since: then) where ids.count > 1 {
      losses.append("\(ids.count) different messages arrived about \(job)")
    }
    return losses
  }

  private func messages(since then: Moment) -> [String: Set<String>] {
    state.withLock { state in
      let heard = state.heard.filter {
        $0.life == state.life || $0.life == 0 && $0.moment <= then
      }
      return Dictionary(grouping: heard, by: \.job).mapValues { Set($0.map(\.id)) }
    }
  }

  /// Returns how a job's promises are not kept, or nil.
  private func loss(
    of id: String, _ promise: Promise, on service: RunningService, _ then: Moment,
    _ failures: Set<String>
  ) async -> String? {
    do {
      let answer = try await service.get("/jobs/\(id)")
      if promise.purged <= then { return answer.status == 404 ? nil : "\(id) was purged" }
      if answer.status == 404, promise.purgeAsked <= then { return nil }
      guard answer.status == 200 else { return "\(id) is lost: \(answer.status)" }
      guard let end = try end(answer) else { return "\(id) has not ended" }
      if let known = promise.end, known.seen <= then,
        known.phase != end.phase || known.finished != end.finished
      {
        return "\(id) had ended \(known), and then \(end)"
      }
      switch end.phase {
      case "success":
        let image = try await service.get("/jobs/\(id)/image")
        let isRight = image.status == 200 && Array(image.body) == promise.bytes
        if !isRight { return "\(id) has other bytes: \(image.status), \(image.body.count)" }
      case "failure":
        let code = (try answer.json()["error"] as? [String: Any])?["code"] as? String ?? ""
        if promise.bytes != nil, !failures.contains(code) { return "\(id) has failed: \(code)" }
      default: if promise.cancelAsked > then { return "\(id) is \(end.phase)" }
      }
      guard promise.isTold, promise.purgeAsked > then else { return nil }
      let isHeard = await poll { self.messages(since: then)[id] != nil }
      return isHeard ? nil : "no message arrived about \(id)"
    } catch {
      return "\(id): \(error)"
    }
  }

  /// Returns the number of files that no job refers to; missing files count, too. Images above 64 KiB and
  /// uploads are in files. Before counting, the cache and cancelled uploads are deleted.
  func orphans(of service: RunningService) async throws -> Int {
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
    // The sweep runs concurrently with the work, and a purged image is deleted after the response.
    var files: [String] = []
    try await eventually {
      files = try FileManager.default.images(below: service.folder)
      return files.count <= filed.count
    }
    let metrics = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
    #expect(metrics.contains(#"imagefetch_jobs{phase="loading"} 0"#))
    #expect(metrics.contains(#"imagefetch_jobs{phase="queued"} 0"#))
    return abs(files.count - filed.count)
  }
}
