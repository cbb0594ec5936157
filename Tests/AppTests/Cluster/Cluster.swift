import Foundation
import Synchronization
import TestSupport
import Testing

/// Several services that share a database and a bucket. Each has its own folder.
final class Cluster: Sendable {
  /// A service and its first instance number.
  private struct Member {
    var service: RunningService
    var number: Int
  }

  private let members = Mutex<[Member]>([])
  private let settings: [String: String]
  let database: TestDatabase
  let bucket: TestBucket
  /// Proxies in front of the database and the bucket, if there are any.
  let proxies: (database: FaultyProxy, bucket: FaultyProxy)?
  /// The database server that the test queries. After a failover it is another one.
  private let server: Mutex<PostgresServer>

  /// Runs the body with several services and an origin, and then stops the services that still run.
  ///
  /// - Parameters:
  ///   - keys: Configuration keys, as in ``withPipeline(_:_:)``.
  ///   - server: Nil: the server that all tests share.
  ///   - url: Returns the server's URL for a database name; nil: its real URL.
  ///   - isProxied: Whether there are proxies in front of the database and the bucket.
  static func open(
    _ count: Int = 3, _ keys: [String: String] = [:], on server: PostgresServer? = nil,
    url: ((String) -> String)? = nil, isProxied: Bool = false,
    _ body: (Cluster, ScriptedOrigin) async throws -> Void
  ) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let root = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: root) }
    let cluster = try await Cluster(
      keys, TestDatabase(in: server ?? .shared), url: url, isProxied: isProxied)
    do {
      for number in 0..<count {
        let folder = "\(root)/\(number)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let member = try await cluster.start(in: folder)
        cluster.members.withLock { $0.append(member) }
      }
      let live = try cluster.run("SELECT number FROM instances WHERE NOT ended ORDER BY number")
      let numbers = cluster.members.withLock { $0.map(\.number) }
      #expect(live.split(separator: "\n").map { Int($0) } == numbers, "a start ends no other")
      try cluster.witnessEnds()
      try await body(cluster, origin)
    } catch {
      for service in cluster.services where service.isRunning {
        Foundation.kill(service.processIdentifier, SIGKILL)
      }
      throw error
    }
    let running = cluster.services.filter(\.isRunning)
    for service in running { service.terminate() }
    for service in running { #expect(try await service.ended() == 0) }
  }

  private init(
    _ keys: [String: String], _ database: TestDatabase, url: ((String) -> String)?, isProxied: Bool
  ) async throws {
    self.database = database
    server = Mutex(database.server)
    bucket = try await TestBucket(prefix: "kept")
    var settings = environment(keys).merging(bucket.settings) { $1 }
    if isProxied {
      let before = try (
        database: FaultyProxy(to: database.server.port), bucket: FaultyProxy(to: bucket.port)
      )
      proxies = before
      settings["IMAGEFETCH_STORAGE_S3_ENDPOINT"] = "http://127.0.0.1:\(before.bucket.port)"
    } else {
      proxies = nil
    }
    let place =
      url?(database.name) ?? database.server.url(of: database.name, at: proxies?.database.port)
    // Longer than the default, for a busy machine.
    settings["IMAGEFETCH_STORAGE_JOBS"] =
      place + (place.contains("?") ? "&" : "?") + "connect_timeout=20"
    self.settings = settings
  }

  private func start(in folder: String) async throws -> Member {
    let service = try await Self.service(in: folder, settings)
    let told = try run("SELECT max(number) FROM instances")
    return Member(service: service, number: try #require(Int(told.filter(\.isNumber))))
  }

  /// Starts a service, again if the database did not answer in time: a short lease leaves it one second, and this machine
  /// may be busy.
  private static func service(in folder: String, _ settings: [String: String]) async throws
    -> RunningService
  {
    for _ in 0..<3 {
      do { return try await RunningService(folder: folder, settings: settings) } catch {
        guard let failure = error as? RunningService.Unstarted,
          failure.log.contains("did not answer in time")
        else { throw error }
      }
    }
    return try await RunningService(folder: folder, settings: settings)
  }

  var services: [RunningService] { members.withLock { $0.map(\.service) } }

  subscript(_ index: Int) -> RunningService { members.withLock { $0[index].service } }

  /// The instance number that a service had when it started.
  func number(of index: Int) -> Int { members.withLock { $0[index].number } }

  /// All services except one.
  func others(than service: RunningService) -> [RunningService] {
    services.filter { $0 !== service }
  }

  /// Starts a new process for a service that has ended.
  func replace(_ index: Int) async throws {
    let member = try await start(in: self[index].folder)
    members.withLock { $0[index] = member }
  }

  // MARK: The database

  /// Makes the database count how often each job has ended since it was last queued.
  private func witnessEnds() throws {
    try run(
      """
      CREATE TABLE ends (id uuid PRIMARY KEY, n int NOT NULL DEFAULT 1);
      CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO ends VALUES (NEW.id) ON CONFLICT (id) DO UPDATE SET n = ends.n + 1;
          RETURN NEW; END';
      CREATE TRIGGER note_end AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (NEW.phase > 0 AND OLD.phase IS DISTINCT FROM NEW.phase) EXECUTE FUNCTION note_end();
      CREATE FUNCTION forget_end() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN DELETE FROM ends WHERE id = NEW.id; RETURN NEW; END';
      CREATE TRIGGER forget_end AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (OLD.phase > 0 AND NEW.phase = 0) EXECUTE FUNCTION forget_end()
      """)
  }

  /// The jobs whose end the database has seen. Each must have ended once.
  var ends: Set<String> {
    get throws {
      #expect(try run("SELECT id, n FROM ends WHERE n > 1") == "")
      return Set(try run("SELECT id FROM ends").split(separator: "\n").map(String.init))
    }
  }

  /// Returns the result of a statement, one line per row.
  @discardableResult
  func run(_ statement: String) throws -> String {
    try server.withLock(\.self).run(statement, in: database.name)
  }

  /// Queries another server from now on.
  func ask(_ other: PostgresServer) { server.withLock { $0 = other } }

  /// Waits until an instance loads the job.
  func holder(of id: String) async throws -> RunningService {
    var number = 0
    try await eventually {
      let told = try run("SELECT instance FROM queue WHERE state = 4 AND id = '\(id)'")
      number = Int(told.filter(\.isNumber)) ?? 0
      return number > 0
    }
    let members = members.withLock(\.self)
    return try #require(members.first { $0.number == number }, "\(number)").service
  }

  // MARK: Jobs

  /// Submits a URL whose response pauses before its end, and waits until the job is loading.
  /// - Returns: The job, the service that loads it, and two others.
  func loading(
    _ url: String
  ) async throws -> (id: String, at: RunningService, b: RunningService, c: RunningService) {
    let id = try await self[0].post(["url": url])
    let holder = try await holder(of: id)
    let others = others(than: holder)
    return (id, holder, others[0], others[1])
  }

  /// Checks that each job has ended once, and that its bytes can be read through all of these services.
  func expectSuccess(
    _ jobs: [String: [UInt8]], through services: [RunningService]
  ) async throws {
    for id in jobs.keys {
      let job = try await services[0].outcome(id)
      #expect(job.phase == "success", "\(job.summary)")
    }
    try await withThrowingTaskGroup { group in
      for service in services {
        group.addTask {
          for (id, bytes) in jobs {
            let image = try await service.image(of: id)
            #expect(image == bytes, "\(id): \(image.count) bytes")
          }
        }
      }
      try await group.waitForAll()
    }
    // A job that the cache answered was submitted as finished.
    let unended = try run("SELECT count(*) FROM jobs WHERE phase = 0").filter(\.isNumber)
    #expect(unended == "0")
    #expect(try ends.isSubset(of: jobs.keys))
  }
}
