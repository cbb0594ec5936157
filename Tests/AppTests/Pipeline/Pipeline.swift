import Digests
import Foundation
import TestSupport
import Testing

/// Runs the body with a service and an origin on loopback.
///
/// - Parameter keys: Configuration keys, such as `jobs.workers`. The back-off and the drain timeout are short
///   unless set.
func withPipeline(
  _ keys: [String: String] = [:],
  _ body: (RunningService, ScriptedOrigin) async throws -> Void
) async throws {
  let origin = try ScriptedOrigin()
  defer { origin.stop() }
  try await withService(environment(keys)) { try await body($0, origin) }
}

/// Returns configuration keys as environment variables.
func environment(_ keys: [String: String]) -> [String: String] {
  let short = ["jobs.retry_backoff.initial": "1ms", "server.drain_timeout": "1s"]
  let all = short.merging(keys) { $1 }
  return Dictionary(
    uniqueKeysWithValues: all.map { key, value in
      ("IMAGEFETCH_" + key.uppercased().replacing(".", with: "_"), value)
    })
}

extension RunningService {
  /// Submits one job.
  /// - Returns: The job's id.
  func post(
    _ members: [String: Any], headers: [String: String] = [:]
  ) async throws -> String {
    let answer = try await send(
      "POST", "/jobs", headers: ["Content-Type": "application/json"].merging(headers) { $1 },
      body: JSONSerialization.data(withJSONObject: members))
    try #require(answer.status == 202, "\(String(decoding: answer.body, as: UTF8.self))")
    return try Self.decoder.decode(ShownJob.self, from: answer.body).id
  }

  /// Submits several jobs.
  /// - Returns: The jobs' ids.
  func post(batch: [[String: Any]]) async throws -> [String] {
    struct Batch: Decodable { var jobs: [ShownJob] }
    let answer = try await submit(batch)
    try #require(answer.status == 202, "\(String(decoding: answer.body, as: UTF8.self))")
    return try Self.decoder.decode(Batch.self, from: answer.body).jobs.map(\.id)
  }

  /// Returns the current state of a job.
  func job(_ id: String, headers: [String: String] = [:]) async throws -> ShownJob {
    try Self.decoder.decode(
      ShownJob.self, from: try await get("/jobs/\(id)", headers: headers).body)
  }

  /// Waits until the job has finished and returns it.
  func outcome(_ id: String, headers: [String: String] = [:]) async throws -> ShownJob {
    let deadline = ContinuousClock.now + patience
    while ContinuousClock.now < deadline {
      let answer = try await get("/jobs/\(id)?wait=20", headers: headers)
      let job = try Self.decoder.decode(ShownJob.self, from: answer.body)
      if job.isFinished { return job }
    }
    throw Unfinished(log: log)
  }

  /// Waits until the jobs have finished and returns them in the given order.
  func outcomes(_ ids: [String]) async throws -> [ShownJob] {
    var jobs: [ShownJob] = []
    for id in ids { jobs.append(try await outcome(id)) }
    return jobs
  }

  /// Submits one job and waits for its end.
  func run(_ members: [String: Any], headers: [String: String] = [:]) async throws -> ShownJob {
    try await outcome(post(members, headers: headers), headers: headers)
  }

  /// Returns the job's image.
  func image(of id: String, headers: [String: String] = [:]) async throws -> [UInt8] {
    let answer = try await get("/jobs/\(id)/image", headers: headers)
    try #require(answer.status == 200)
    return Array(answer.body)
  }

  /// Returns the ids of the jobs in a phase, newest first, at most 5,000.
  func all(_ phase: String) async throws -> [String] {
    struct Page: Decodable {
      var jobs: [ShownJob]
      var nextCursor: String?
    }
    var ids: [String] = []
    var cursor = ""
    for _ in 0..<10 {
      let answer = try await get("/jobs?limit=500&phase=\(phase)\(cursor)")
      let page = try Self.decoder.decode(Page.self, from: answer.body)
      ids += page.jobs.map(\.id)
      guard let next = page.nextCursor else { break }
      cursor = "&cursor=\(next)"
    }
    return ids
  }

  /// Waits until the job fulfills a condition.
  @discardableResult
  func wait(for id: String, until isReached: (ShownJob) -> Bool) async throws -> ShownJob {
    var newest = try await job(id)
    try await eventually {
      newest = try await job(id)
      return isReached(newest)
    }
    return newest
  }

  func cancel(_ id: String) async throws {
    #expect(try await send("DELETE", "/jobs/\(id)").status == 200)
  }

  func fetchAgain(_ id: String) async throws {
    #expect(try await send("POST", "/jobs/\(id)/fetch").status == 200)
  }

  func setPriority(of id: String, to priority: String) async throws {
    let answer = try await send(
      "PATCH", "/jobs/\(id)", headers: ["Content-Type": "application/merge-patch+json"],
      body: Data(#"{"priority": "\#(priority)"}"#.utf8))
    #expect(answer.status == 200)
  }

  func setConstrained(_ isConstrained: Bool) async throws {
    let answer = try await send(
      "PUT", "/network", headers: ["Content-Type": "application/json"],
      body: Data(#"{"constrained": \#(isConstrained)}"#.utf8))
    #expect(answer.status == 200)
  }

  private static var decoder: JSONDecoder {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    return decoder
  }
}

extension ScriptedOrigin {
  /// The requested paths, in the order of the requests.
  var paths: [String] { requests.map(\.path) }
}

/// A unique image: bytes after an image's end are not an error.
func image(_ name: String, from image: [UInt8] = Fixtures.smallPNG) -> [UInt8] {
  image + Array(name.utf8)
}

/// Returns the value of `integrity` for these bytes.
func integrity(_ bytes: [UInt8]) -> String {
  "sha256-" + Data(SHA256.hash(data: bytes)).base64EncodedString()
}

extension RunningService {
  /// Repeats until the condition is true or the time is over.
  func within(_ limit: Duration, _ condition: () async throws -> Bool) async {
    let deadline = ContinuousClock.now + limit
    while (try? await condition()) != true, ContinuousClock.now < deadline {
      try? await Task.sleep(for: .milliseconds(5))
    }
  }
}
