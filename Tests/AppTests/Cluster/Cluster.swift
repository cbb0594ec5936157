import Foundation
import TestSupport
import Testing

/// Several services that share a database and a bucket, each with a folder of its own.
struct Cluster: Sendable {
  let services: [RunningService]
  /// Who each of them is to the others at first.
  private let numbers: [Int]
  let database: TestDatabase
  let bucket: ServiceBucket

  /// Runs the body beside so many services and an origin, and then stops those that still run.
  ///
  /// - Parameter keys: of the configuration, as ``withPipeline(_:_:)`` has them.
  static func open(
    _ count: Int = 3, _ keys: [String: String] = [:],
    _ body: (Cluster, ScriptedOrigin) async throws -> Void
  ) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let (database, bucket) = (try TestDatabase(in: .shared), try await ServiceBucket())
    var settings = environment(keys).merging(bucket.settings) { $1 }
    settings["IMAGEFETCH_STORAGE_JOBS"] = database.url
    let root = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: root) }
    var (services, numbers) = ([RunningService](), [Int]())
    do {
      for number in 0..<count {
        let folder = "\(root)/\(number)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        services.append(try await RunningService(folder: folder, settings: settings))
        let told = try database.server.run("SELECT max(number) FROM instances", in: database.name)
        numbers.append(try #require(Int(told.filter(\.isNumber))))
      }
      let cluster = Cluster(
        services: services, numbers: numbers, database: database, bucket: bucket)
      let live = try cluster.run("SELECT number FROM instances WHERE NOT ended ORDER BY number")
      #expect(live.split(separator: "\n").map { Int($0) } == numbers, "a start ends no other")
      try cluster.witnessEnds()
      try await body(cluster, origin)
    } catch {
      for service in services where service.isRunning {
        Foundation.kill(service.processIdentifier, SIGKILL)
      }
      throw error
    }
    let running = services.filter(\.isRunning)
    for service in running { service.terminate() }
    for service in running { #expect(try await service.ended() == 0) }
  }

  subscript(_ index: Int) -> RunningService { services[index] }

  /// All but one.
  func others(than service: RunningService) -> [RunningService] {
    services.filter { $0 !== service }
  }

  // MARK: What the database says

  /// Has the database note each end of a job, and refuse a second one of what was not queued again.
  private func witnessEnds() throws {
    try run(
      """
      CREATE TABLE ends (id uuid PRIMARY KEY);
      CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO ends VALUES (NEW.id); RETURN NEW; END';
      CREATE TRIGGER note_end AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (OLD.phase = 0 AND NEW.phase > 0) EXECUTE FUNCTION note_end();
      CREATE FUNCTION forget_end() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN DELETE FROM ends WHERE id = NEW.id; RETURN NEW; END';
      CREATE TRIGGER forget_end AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (OLD.phase > 0 AND NEW.phase = 0) EXECUTE FUNCTION forget_end()
      """)
  }

  /// Of which jobs it saw the end.
  var ends: Set<String> {
    get throws { Set(try run("SELECT id FROM ends").split(separator: "\n").map(String.init)) }
  }

  /// What a statement gives, a line each row.
  @discardableResult
  func run(_ statement: String) throws -> String {
    try database.server.run(statement, in: database.name)
  }

  /// Waits until somebody loads the job.
  func holder(of id: String) async throws -> RunningService {
    var number = 0
    try await eventually {
      let told = try run("SELECT instance FROM queue WHERE state = 4 AND id = '\(id)'")
      number = Int(told.filter(\.isNumber)) ?? 0
      return number > 0
    }
    return services[try #require(numbers.firstIndex(of: number), "\(number) of \(numbers)")]
  }

  // MARK: Work

  /// Submits a URL of which some bytes are held back, and waits until it is loading.
  /// - Returns: the job, who loads it, and two others.
  func loading(
    _ url: String
  ) async throws -> (id: String, at: RunningService, b: RunningService, c: RunningService) {
    let id = try await services[0].post(["url": url])
    let holder = try await holder(of: id)
    let others = others(than: holder)
    return (id, holder, others[0], others[1])
  }

  /// Shows that the jobs have ended once each, and that each one's bytes are had through all of these.
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
    // One that the cache answered was submitted with its end.
    let unended = try run("SELECT count(*) FROM jobs WHERE phase = 0").filter(\.isNumber)
    #expect(unended == "0")
    #expect(try ends.isSubset(of: jobs.keys))
  }
}
