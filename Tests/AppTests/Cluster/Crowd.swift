import Foundation
import Synchronization
import TestSupport
import Testing

/// Clients of a cluster, and origins that are never idle: jobs come in for as long as something is done to the cluster,
/// and a witness looks at what became of them.
struct Crowd {
  let cluster: Cluster
  let origin: ScriptedOrigin
  /// Transfers that all instances may have at once.
  static let perHost = 6
  /// Of the configuration, beside what a test says.
  static let keys = [
    "cluster.lease": "10s", "fetch.max_per_host": "\(perHost)", "jobs.max_attempts": "10",
    "jobs.retry_backoff.initial": "500ms", "jobs.retry_backoff.maximum": "5s",
    // Every job is to be a load.
    "cache.default_ttl": "0s",
  ]
  private static let images = 40
  /// Jobs that were acknowledged so far.
  private let acknowledged = Count()

  /// Has the origin give out images, slowly.
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

  /// Every other one is larger than the database takes in.
  static func body(_ number: Int) -> [UInt8] {
    image("/\(number)", from: number % 2 == 0 ? Fixtures.smallPNG : Fixtures.filedPNG)
  }

  /// Submits jobs until the body has returned.
  ///
  /// - Parameter pause: of each client, after each job.
  /// - Returns: what was acknowledged, with the bytes that it is to give.
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
      // Each ends by itself: URLSession's tasks, cancelled by many at once, may wait for each other for ever.
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

  /// Waits until so many jobs more are acknowledged.
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

  /// As a client does that has several addresses: where one does not take the job the next is asked, under the same key.
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

  // MARK: What the witness expects

  /// Shows that nothing was lost and nothing came twice: what was acknowledged has ended once, with the right bytes
  /// through every instance; origins saw no more than they may, where no lease was lost; each image that is referred to is
  /// there; and none that nothing refers to is left by a sweep.
  ///
  /// - Parameter undoesClaims: whether the database crashed: claims, which don't wait for its disk, may be undone.
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
    // What goes on under a lease or a claim that was lost is counted no more, and is begun once more by others.
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
    // A sweep comes with each new leader: the first that is replaced, once the others are.
    try await cluster.bucket.leaveOrphan(Array("nobody's".utf8))
    for number in cluster.services.indices {
      #expect(try await cluster[number].stop() == 0, sourceLocation: location)
      try await cluster.replace(number)
    }
    try await eventually { try await Set(cluster.bucket.keys) == known }
  }

  /// What requests were for, on which connection, and when they came.
  private static func told(_ requests: [ScriptedRequest]) -> String {
    let last = requests.map(\.received).max() ?? .now
    return requests.map {
      "\($0.path) on connection \($0.connection), \(last - $0.received) before the last one"
    }.joined(separator: "\n")
  }

  /// Leases that ended before they were renewed, of the instances that are there.
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
  /// The objects of all images that something refers to.
  var knownObjects: Set<String> {
    get throws {
      let told = try run(
        """
        SELECT encode(digest, 'hex') || '-' || to_hex(generation) FROM images
        WHERE NOT embedded AND NOT leaving AND is_referred_to(digest)
        """)
      return Set(
        told.split(separator: "\n").map { "\($0.prefix(2))/\($0.dropFirst(2))" })
    }
  }
}
