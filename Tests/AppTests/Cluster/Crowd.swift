import Foundation
import Synchronization
import TestSupport
import Testing

/// Clients and origins of a cluster under load. Jobs are submitted while a test disturbs the cluster.
/// Afterwards their results are checked.
struct Crowd {
  let cluster: Cluster
  let origin: ScriptedOrigin
  /// The most transfers that all instances may have at once.
  static let perHost = 6
  /// Configuration keys in addition to those of a test.
  static let keys = [
    "cluster.lease": "10s", "fetch.max_per_host": "\(perHost)", "jobs.max_attempts": "10",
    "jobs.retry_backoff.initial": "500ms", "jobs.retry_backoff.maximum": "5s",
    // Every job needs a load of its own.
    "cache.default_ttl": "0s",
  ]
  private static let images = 40
  /// The number of jobs acknowledged so far.
  private let acknowledged = Count()

  /// Makes the origin serve images slowly.
  init(_ cluster: Cluster, _ origin: ScriptedOrigin) {
    (self.cluster, self.origin) = (cluster, origin)
    for number in 0..<Self.images {
      let body = Self.body(number)
      let head = ScriptedReply.head(200, [("Content-Length", "\(body.count)")])
      let slow = ScriptedReply(
        .send(head),
        .drip(Array(body.dropLast()), size: body.count / 4, every: .milliseconds(50)),
        .send(Array(body.suffix(1))))
      origin.on("/\(number)", slow)
    }
  }

  /// Every other image is too large for the database.
  static func body(_ number: Int) -> [UInt8] {
    image("/\(number)", from: number % 2 == 0 ? Fixtures.smallPNG : Fixtures.filedPNG)
  }

  /// Submits jobs until the body has returned.
  ///
  /// - Parameter pause: The pause of each client after each job.
  /// - Returns: The acknowledged jobs with their expected bytes.
  func submit(
    clients: Int = 8, every pause: Duration = .milliseconds(400),
    while body: () async throws -> Void
  ) async throws -> [String: [UInt8]] {
    let isOver = Flag()
    return try await withThrowingTaskGroup(of: [String: [UInt8]].self) { group in
      for client in 0..<clients {
        group.addTask { try await submit(as: client, every: pause, until: isOver) }
      }
      let result: Result<Void, any Error>
      do { result = .success(try await body()) } catch { result = .failure(error) }
      isOver.value.store(true, ordering: .relaxed)
      // Each client ends on its own. If many tasks of URLSession are cancelled at once, they may wait for
      // each other forever.
      var jobs: [String: [UInt8]] = [:]
      var failure: (any Error)?
      while let some = await group.nextResult() {
        do { jobs.merge(try some.get()) { $1 } } catch { failure = error }
      }
      try result.get()
      if let failure { throw failure }
      return jobs
    }
  }

  private final class Flag: Sendable { let value = Atomic(false) }
  private final class Count: Sendable { let value = Atomic(0) }

  /// Waits until this many more jobs are acknowledged.
  func submitted(_ more: Int) async throws {
    let end = acknowledged.value.load(ordering: .relaxed) + more
    try await eventually { acknowledged.value.load(ordering: .relaxed) >= end }
  }

  private func submit(
    as client: Int, every pause: Duration, until isOver: Flag
  ) async throws -> [String: [UInt8]] {
    var jobs: [String: [UInt8]] = [:]
    var turn = 0
    while !isOver.value.load(ordering: .relaxed) {
      turn += 1
      let number = (client * 7 + turn) % Self.images
      let id = try await submit(origin.url("/\(number)"), as: "\(client)-\(turn)", client + turn)
      jobs[id] = Self.body(number)
      acknowledged.value.add(1, ordering: .relaxed)
      try await Task.sleep(for: pause)
    }
    return jobs
  }

  /// Submits a job like a client with several addresses: if one instance does not accept it, the client asks
  /// the next with the same key.
  private func submit(_ url: String, as key: String, _ first: Int) async throws -> String {
    let body = try JSONSerialization.data(withJSONObject: ["url": url])
    let fields = ["Content-Type": "application/json", "Idempotency-Key": "\"\(key)\""]
    let deadline = ContinuousClock.now + patience
    var turn = first
    while ContinuousClock.now < deadline {
      let services = cluster.services
      turn += 1
      do {
        let answer = try await services[turn % services.count].send(
          "POST", "/jobs", headers: fields, body: body)
        if answer.status == 202 { return try #require(answer.json()["id"] as? String) }
        #expect(answer.status == 503, "\(String(decoding: answer.body, as: UTF8.self))")
      } catch is URLError {}
      try await Task.sleep(for: .milliseconds(50))
    }
    throw Untaken(key: key)
  }

  struct Untaken: Error { let key: String }

  // MARK: Checks

  /// Checks that nothing was lost or done twice. Each acknowledged job has ended once, and each instance
  /// returns the right bytes. Origins saw at most the allowed transfers, unless a lease was lost. Each image
  /// that is referred to exists, and a sweep deletes all others.
  ///
  /// - Parameter undoesClaims: Whether the database crashed. Claims are not synced to its disk, so a crash
  ///   may undo them.
  func expectNothingLost(
    _ jobs: [String: [UInt8]], undoesClaims: Bool = false,
    _ location: SourceLocation = #_sourceLocation
  ) async throws {
    try await cluster.expectSuccess(jobs, through: cluster.services)
    let ends = try cluster.ends
    #expect(ends == Set(jobs.keys) && jobs.count > 20, sourceLocation: location)
    let lost = try await leasesLost
    print(
      "\(jobs.count) jobs, \(origin.requests.count) transfers, \(origin.mostAtOnce) at once, "
        + "\(lost) leases lost")
    // Work under a lost lease or claim is no longer counted, and another instance starts it again.
    let times = lost == 0 && !undoesClaims ? 1 : 2
    #expect(
      origin.mostAtOnce <= times * Self.perHost, "\(Self.told(origin.requestsAtMost()))",
      sourceLocation: location)
    for path in (0..<Self.images).map({ "/\($0)" }) {
      #expect(
        origin.mostAtOnce(to: path) <= times, "\(Self.told(origin.requestsAtMost(to: path)))",
        sourceLocation: location)
    }
    let known = try cluster.knownObjects
    #expect(known.isSubset(of: try await cluster.bucket.keys), sourceLocation: location)
    let filed = Set(jobs.values.filter { $0.count > 64 << 10 })
    #expect(known.count == filed.count, sourceLocation: location)
    // Each new leader starts a sweep. The first service is replaced, and after it the others.
    try await cluster.bucket.leaveOrphan(Array("nobody's".utf8))
    for number in cluster.services.indices {
      #expect(try await cluster[number].stop() == 0, sourceLocation: location)
      try await cluster.replace(number)
    }
    try await eventually { try await Set(cluster.bucket.keys) == known }
  }

  /// Describes requests: their path, connection and time.
  private static func told(_ requests: [ScriptedRequest]) -> String {
    let last = requests.map(\.received).max() ?? .now
    return requests.map {
      "\($0.path) on connection \($0.connection), \(last - $0.received) before the last one"
    }.joined(separator: "\n")
  }

  /// The leases that expired before they were renewed, summed over the current instances.
  private var leasesLost: Int {
    get async throws {
      let name = "imagefetch_leases_lost_total "
      var lost = 0
      for service in cluster.services {
        let text = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
        let line = try #require(text.split(separator: "\n").first { $0.hasPrefix(name) })
        lost += try #require(Int(line.dropFirst(name.count)))
      }
      return lost
    }
  }
}

extension Cluster {
  /// The objects of all images that are referred to.
  var knownObjects: Set<String> {
    get throws {
      let told = try run(
        """
        SELECT encode(digest, 'hex') || '-' || to_hex(generation) FROM images
        WHERE content IS NULL AND NOT leaving AND (digest IN (SELECT image FROM jobs) OR digest IN (SELECT source FROM jobs)
            OR digest IN (SELECT digest FROM cache) OR digest IN (SELECT digest FROM reservations))
        """)
      return Set(
        told.split(separator: "\n").map { "\($0.prefix(2))/\($0.dropFirst(2))" })
    }
  }
}
