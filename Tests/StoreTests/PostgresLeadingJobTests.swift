import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

/// Each transfer must be counted, even if a claim and the end of a load run concurrently and do not
/// see each other.
@Suite("Leading jobs in PostgreSQL", .timeLimit(.minutes(15)))
struct PostgresLeadingJobTests {
  private static let origin = "https://a.example"
  private static let url = "\(origin)/x"
  /// An origin with one transfer. The transfer that ends does not count any more.
  private static let room = OriginCapacity(usual: 1, overall: OriginCapacity.Overall(transfers: 1))

  /// Two instances. The first one is loading a job.
  private struct Two: Sendable {
    let database: TestDatabase
    let a, b: SQLJobStore
    let instances: (a: Instance, b: Instance)
    let first: Claim

    init() async throws {
      database = try TestDatabase(in: .shared)
      var configuration = SQLJobStore.Configuration(url: database.url)
      configuration.isShared = true
      configuration.timeout = patience
      a = try SQLJobStore(configuration)
      b = try SQLJobStore(configuration)
      instances = (
        try await a.register(for: .seconds(10_000)), try await b.register(for: .seconds(10_000))
      )
      let job = Job.sample(1, url: PostgresLeadingJobTests.url)
      _ = try await a.submit([job], key: nil, capacity: 9)
      let claimed = try await a.claim(1, for: instances.a, room: PostgresLeadingJobTests.room)
      first = try #require(claimed.jobs.first).claim
    }

    /// Submits another job with the same request.
    func submitEqual() async throws -> JobID {
      let job = Job.sample(2, url: PostgresLeadingJobTests.url)
      #expect(try await a.submit([job], key: nil, capacity: 9) == .accepted)
      return job.id
    }

    func claim() async throws -> [JobID] {
      try await a.claim(1, for: instances.a, room: PostgresLeadingJobTests.room).jobs.map(\.job.id)
    }

    /// Completes the first job.
    func end() async throws -> Phase? {
      var completion = Completion([first]) {
        $0.fail(.notCached, at: .at(9), keptFor: .seconds(9))
        return true
      }
      completion.claimsEqual = true
      let ended = try await a.complete(completion)
      #expect(ended.claimedEqual.isEmpty)
      return ended.jobs.first.flatMap { $0?.phase }
    }

    static func isLoading(_ id: JobID) -> String {
      "EXISTS (SELECT FROM queue WHERE id = '\(id)' AND state = 4)"
    }

    // MARK: Expectations

    /// Expects this job to be the only loading one, and its origin to have no capacity left.
    func expectLead(of id: JobID, _ location: SourceLocation = #_sourceLocation) async throws {
      let loading = try database.server.run(
        "SELECT id, leads FROM queue WHERE state = 4", in: database.name)
      #expect(loading == "\(id)|t\n", sourceLocation: location)
      let jobs = [
        Job.sample(3, url: "\(PostgresLeadingJobTests.origin)/other"),
        Job.sample(4, url: PostgresLeadingJobTests.url),
      ]
      _ = try await b.submit(jobs, key: nil, capacity: 9)
      let claimed = try await b.claim(9, for: instances.b, room: PostgresLeadingJobTests.room)
      #expect(claimed.jobs.isEmpty, sourceLocation: location)
      #expect(claimed.isHeldBack && claimed.loadingElsewhere.count == 1, sourceLocation: location)
      try await a.audit(location)
    }

    func close() async {
      await a.close()
      await b.close()
    }
  }

  @Test("a job that is joining a load leads it if the load ends concurrently")
  func claimFirst() async throws {
    let two = try await Two()
    try two.database.block(
      """
      TRIGGER gate BEFORE UPDATE ON queue FOR EACH ROW
        WHEN (NEW.state = 4 AND OLD.state <> 4)
      """)
    let second = try await two.submitEqual()
    async let claimed = two.claim()
    await two.database.expect(TestDatabase.isHeld("pg-claim"))
    async let ended = two.end()
    // Without the lock, the end of the load would not see the claim and would be over.
    await two.database.expect(
      "NOT \(Two.isLoading(two.first.job)) OR \(TestDatabase.waits("pg-write"))")
    try two.database.unblock()
    let (taken, phase) = (try await claimed, try await ended)
    #expect(taken == [second] && phase == .failure)
    try await two.expectLead(of: second)
    await two.close()
  }

  @Test("a job with the same request as an ending load starts its own, without waiting for the end")
  func endFirst() async throws {
    let two = try await Two()
    try two.database.block(
      """
      CONSTRAINT TRIGGER gate AFTER UPDATE ON jobs DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW
      """)
    async let ended = two.end()
    await two.database.expect(TestDatabase.isHeld("pg-write"))
    let second = try await two.submitEqual()
    async let claimed = two.claim()
    // The claim may wait to write the shared counters, which happens last.
    await two.database.expect("\(Two.isLoading(second)) OR \(TestDatabase.waits("pg-claim"))")
    try two.database.unblock()
    let (taken, phase) = (try await claimed, try await ended)
    #expect(taken == [second] && phase == .failure)
    try await two.expectLead(of: second)
    await two.close()
  }

  @Test("a job that waits for two loads of its request is claimed once")
  func twoLeaders() async throws {
    let two = try await Two()
    let second = try await two.submitEqual()
    #expect(try await two.claim() == [second])
    // As after a claim that met a locked row.
    _ = try two.database.server.run(
      "UPDATE queue SET leads = true WHERE state = 4", in: two.database.name)
    let third = Job.sample(3, url: Self.url)
    #expect(try await two.b.submit([third], key: nil, capacity: 9) == .accepted)
    #expect(try await two.b.claim(9, for: two.instances.b, room: .unlimited).jobs.isEmpty)
    #expect(try await two.a.counts().queue?[.awaiting] == 1)
    let claimed = try await two.a.claim(9, for: two.instances.a, room: .unlimited)
    #expect(claimed.jobs.map(\.job.id) == [third.id])
    let counts = try await two.a.counts()
    #expect(counts.jobs[.queued] == 0 && counts.jobs[.loading] == 3)
    await two.close()
  }

  @Test("another job leads a load after the uncertain claim of the leading job was requeued")
  func putBack() async throws {
    let two = try await Two()
    let second = try await two.submitEqual()
    #expect(try await two.claim() == [second])
    two.a.unknownClaims.add([two.first.number])
    // The transfer belongs to the second job, so the origin has no capacity for another one.
    let full = OriginCapacity(
      usual: 0, overall: OriginCapacity.Overall(transfers: 1, own: [Self.origin: 1]))
    #expect(try await two.a.claim(9, for: two.instances.a, room: full).jobs.isEmpty)
    #expect(try await two.a.counts().jobs[.queued] == 1)
    try await two.expectLead(of: second)
    await two.close()
  }
}
