import Jobs
import TestSupport
import Testing

@testable import PostgreSQL

@Suite("Room for images in PostgreSQL")
struct PostgresRoomTests {
  private let database: TestDatabase
  private let postgres: PostgresJobStore
  private let store: StoreUnderTest

  init() throws {
    database = try TestDatabase(in: .shared)
    let clock = ManualClock(.at(0))
    postgres = try Self.open(database, clock)
    store = StoreUnderTest(postgres, clock)
  }

  private static func open(
    _ database: TestDatabase, _ clock: ManualClock
  ) throws -> PostgresJobStore {
    var configuration = PostgresJobStore.Configuration(url: database.url)
    configuration.now = { clock.now }
    return try PostgresJobStore(configuration)
  }

  /// Ends a new job with a small image.
  private func completion(
    _ number: Int64, with image: EmbeddedImage, limit: Int = .max
  ) async throws -> Completion {
    _ = try await store.submit(.sample(number))
    let (_, claim) = try #require(await store.claimOne(at: .at(number)))
    return Completion([claim], image: image, imageLimit: limit) {
      $0.succeed(with: image.digest, bytes: image.content.count, at: .at(number))
      return true
    }
  }

  @Test("a small image that gives way to another one of the same transaction is taken in again")
  func merged() async throws {
    let (known, new) = (EmbeddedImage(Array(0..<40)), EmbeddedImage(Array(40..<80)))
    let first = try await completion(1, with: known)
    #expect(try await store.complete(first).jobs[0]?.image?.isKept == true)
    let second = try await completion(2, with: known, limit: 60)
    let third = try await completion(3, with: new, limit: 60)
    let requests = [second, third].map { ending in
      WriteRequest.change(
        ChangeRequest(
          targets: ending.claims.map { ($0.job, $0) }, change: ending.change, completion: ending))
    }
    let outcomes = try await postgres.write { try $0.write(requests, isRepeated: false) }
    for outcome in outcomes {
      for job in try outcome.get().jobs { #expect(try job.get()?.image?.isKept == true) }
    }
    #expect(try await store.job(first.claims[0].job)?.image?.isKept == false, "it gave way")
    for image in [known, new] {
      #expect(try await postgres.embeddedImage(image.digest) == image.content)
    }
    try await store.audit()
    await store.close()
  }

  @Test("a small image that another instance removes while its next job ends is taken in again")
  func removedMeanwhile() async throws {
    let image = EmbeddedImage([1, 2, 3])
    let first = try await completion(1, with: image)
    _ = try await store.complete(first)
    #expect(try await store.remove(first.claims[0].job))
    let second = try await completion(2, with: image)
    let other = try Self.open(database, store.clock)
    let instance = try await other.register(for: .seconds(1_000))
    let (removed, continuation) = AsyncStream<Void>.makeStream()
    async let removal: Void = other.write { transaction in
      defer { continuation.finish() }
      #expect(try transaction.leave(abandoned: 9, for: instance) == [], "it is no file")
      continuation.yield()
      // Until the other one has found it, and waits for its row.
      while try transaction.execute(
        "SELECT FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"
      ).isEmpty {
        try transaction.execute("SELECT pg_sleep(0.005)")
      }
    }
    for await _ in removed { break }
    #expect(try await store.complete(second).jobs[0]?.image?.isKept == true)
    try await removal
    #expect(try await postgres.embeddedImage(image.digest) == image.content)
    try await store.audit()
    await other.close()
    await store.close()
  }

  /// Saves jobs that the cache answered with an image of 40 bytes, which is kept.
  private func share(_ digest: ImageDigest, by count: Int) async throws -> [JobID] {
    let jobs = (0..<count).map { number -> Job in
      var job = Job.sample(Int64(number), at: 10)
      job.succeed(with: digest, bytes: 40, at: .at(10))
      return job
    }
    for start in stride(from: 0, to: count, by: 1_000) {
      let some = Array(jobs[start..<min(count, start + 1_000)])
      #expect(try await store.submit(some, key: nil, capacity: .max) == .accepted)
    }
    return jobs.map(\.id)
  }

  private func references(to digest: ImageDigest) async throws -> Int64? {
    try await postgres.read {
      try $0.execute("SELECT count(*) FROM jobs WHERE image = $1", [.bytes(digest.bytes)]).int(0, 0)
    }
  }

  @Test("an image that very many share gives way over several calls; others make room meanwhile")
  func crowded() async throws {
    let portion = Transaction.portion
    let (crowded, other) = (ImageDigest.sample(1), ImageDigest.sample(2))
    let first = try #require(await store.succeed(1, with: crowded, bytes: 40))
    _ = try await store.succeed(2, with: other, bytes: 40)
    let sharing = try await share(crowded, by: 3 * portion + 100)
    let (third, fourth) = (JobID(at: .at(3)), JobID(at: .at(4)))
    #expect(
      try await store.reserve(.sample(3), bytes: 40, as: third, limit: 100)
        == .reserved(evicted: [other]))
    #expect(try await references(to: crowded) == Int64(2 * portion + 102))
    #expect(
      try await store.reserve(.sample(4), bytes: 40, as: fourth, limit: 100)
        == .noRoomYet(evicted: []))
    #expect(try await references(to: crowded) == Int64(portion + 102))
    try await store.audit()

    let small = EmbeddedImage(Array(0..<20))
    let completed = try await store.complete(try await completion(1_000, with: small, limit: 90))
    #expect(completed.jobs[0]?.image?.isKept == true && completed.evicted == [])
    #expect(try await references(to: crowded) == 102)
    #expect(
      try await store.reserve(.sample(4), bytes: 40, as: fourth, limit: 120)
        == .reserved(evicted: [crowded]))
    for id in [first.id, sharing[0], sharing[sharing.count - 1]] {
      #expect(try await store.job(id)?.image?.isKept == false)
    }
    #expect(try await postgres.embeddedImage(small.digest) == small.content)
    #expect(try await !store.refers(to: crowded))
    #expect(try await store.counts().imageBytes == 100)
    try await store.audit()
    await store.close()
  }

  @Test("an image that very many share is lost by all of them, where its bytes are harmed")
  func lost() async throws {
    let digest = ImageDigest.sample(1)
    let first = try #require(await store.succeed(1, with: digest, bytes: 40))
    let sharing = try await share(digest, by: Transaction.portion + 100)
    #expect(try await Set(store.lose(digest) ?? []) == Set(sharing + [first.id]))
    #expect(try await !store.refers(to: digest))
    #expect(try await store.job(sharing[0])?.image?.isKept == false)
    #expect(
      try await store.reserve(digest, bytes: 40, as: first.id, limit: 100) == .pendingDeletion)
    try await store.audit()
    await store.close()
  }
}
