import Caching
import Foundation
import Synchronization
import TestSupport
import Testing

/// Runs one case against the running service, with its own origin.
final class CaseRun: Sendable {
  private let row: Case
  private let service: RunningService
  private let origin: ScriptedOrigin
  private let script: Mutex<CaseOrigin>

  init(_ row: Case, on service: RunningService) throws {
    self.row = row
    self.service = service
    origin = try ScriptedOrigin()
    script = Mutex(CaseOrigin(row))
  }

  /// - Returns: The unexpected results, and whether the run was fast enough to be valid. Responses of some
  ///   cases are fresh for only two seconds.
  func run() async throws -> (faults: [String], isValid: Bool) {
    origin.on("/image.png") { [weak self] in self?.reply(to: $0) ?? .closed }
    defer { origin.stop() }
    var faults: [String] = []
    let start = ContinuousClock.now
    for (index, step) in row.steps.enumerated() {
      try await Task.sleep(for: .seconds(step.pause))
      faults += try await run(step, number: index + 1)
    }
    let pauses = row.steps.reduce(0) { $0 + $1.pause }
    return (faults, ContinuousClock.now - start < .seconds(pauses) + .milliseconds(900))
  }

  private func run(_ step: Step, number: Int) async throws -> [String] {
    script.withLock { $0.begin(number) }
    let before = origin.requests.count
    let id = try await submit(step)
    let job = try await service.finished(id)
    if step.expected == .stale(asks: true) {
      await poll { origin.requests.count > before }
    }
    let requests = Array(origin.requests.dropFirst(before))
    let outcome = Outcome(job: job, requests: requests.count, conditions: requests.first)
    var isRight = outcome.result(of: number) == step.expected
    if let least = step.ageAbove, (outcome.age ?? 0) <= least { isRight = false }
    if let width = outcome.width {
      let image = try await service.get("/jobs/\(id)/image")
      if Array(image.body) != CaseOrigin.image(width) { isRight = false }
    }
    if isRight { return [] }
    return [
      "\(row.id), step \(number): not \(step.expected), \(requests.count) requests, \(outcome)"
    ]
  }

  private func submit(_ step: Step) async throws -> String {
    var job: [String: Any] = ["url": origin.url("/image.png" + step.query), "cache": step.mode]
    if !step.headers.isEmpty { job["headers"] = step.headers }
    let answer = try await service.submit(job)
    #expect(answer.status == 202, "\(row.id)")
    return try #require(try answer.json()["id"] as? String, "\(row.id)")
  }

  private func reply(to request: ScriptedRequest) -> ScriptedReply {
    let now = Int64(Date().timeIntervalSince1970 * 1000)
    let fields = request.headers.map { Field(name: $0.name, value: $0.value) }
    let (answer, interim) = script.withLock {
      ($0.answer(fields, at: now), row.steps[$0.number - 1].interim)
    }
    guard let answer else { return .closed }
    let reply = ScriptedReply.status(
      answer.status,
      headers: [("Content-Type", "image/png")] + answer.fields.map { ($0.name, $0.value) },
      body: answer.body)
    return interim.map { .interim($0, then: reply) } ?? reply
  }
}

/// What the test observes of a job at the origin and in the job's JSON.
private struct Outcome: CustomStringConvertible {
  let phase: String?
  let status: String?
  let age: Int?
  let width: Int?
  private let code: String?
  private let requests: Int
  private let isTagged: Bool
  private let isDated: Bool

  init(job: [String: Any], requests: Int, conditions request: ScriptedRequest?) {
    let cache = job["cache"] as? [String: Any]
    phase = job["phase"] as? String
    status = cache?["status"] as? String
    age = cache?["age"] as? Int
    width = (job["image"] as? [String: Any])?["width"] as? Int
    code = (job["error"] as? [String: Any])?["code"] as? String
    self.requests = requests
    isTagged = request?.header("If-None-Match") != nil
    isDated = request?.header("If-Modified-Since") != nil
  }

  var description: String {
    let image = width.map { "step \($0)'s image" } ?? "no image"
    return "\(phase ?? "no phase"), \(status ?? "no cache"), \(image), \(code ?? "no error")"
  }

  /// Returns the result of step `number`; nil if the observations contradict each other.
  func result(of number: Int) -> Expected? {
    if phase == "failure" { return (requests == 0) == (code == "not_cached") ? .failed : nil }
    guard phase == "success", let width else { return nil }
    switch status {
    case "miss", "bypass": return requests == 1 && width == number ? .asked : nil
    case "hit": return requests == 0 ? .cached(from: width) : nil
    case "stale": return width == 1 ? .stale(asks: requests > 0) : nil
    case "revalidated": return requests == 1 && width == 1 ? validated : nil
    default: return nil
    }
  }

  private var validated: Expected? { isTagged ? .tagged : isDated ? .dated : nil }
}
