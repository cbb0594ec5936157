import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("Storage limit for images in PostgreSQL")
struct PostgresEvictionTests {
  private let database: TestDatabase
  private let postgres: SQLJobStore
  private let store: StoreUnderTest

  init() throws {
    database = try TestDatabase(in: .shared)
    let clock = ManualClock(.at(0))
    postgres = try Self.open(database, clock)
    store = StoreUnderTest(postgres, clock)
  }

  private static func open(
    _ database: TestDatabase, _ clock: ManualClock
  ) throws -> SQLJobStore {
    var configuration = SQLJobStore.Configuration(url: database.url)
    configuration.now = { clock.now }
    return try SQLJobStore(configuration)
  }

  /// Returns the completion of a new job with a small image.
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

  @Test("a small image evicted by another one in the same transaction is stored again")
  func merged() async throws {
    let (known, new) = (EmbeddedImage(Array(0..<40)), EmbeddedImage(Array(40..<80)))
    let first = try await completion(1, with: known)
    #expect(try await store.complete(first).jobs[0]?.image?.isKept == true)
    let second = try await completion(2, with: known, limit: 60)
    let third = try await completion(3, with: new, limit: 60)
    let requests = [second, third].map { ending in
      StoreRequest.change(
        ChangeRequest(
          targets: ending.claims.map { ($0.job, $0) }, change: ending.change, completion: ending))
    }
    let outcomes = try await postgres.write {
      try $0.perform(requests, isRepeated: false, Refusals(), Refusals())
    }
    for outcome in outcomes {
      for job in try outcome.get().jobs { #expect(try job.get()?.image?.isKept == true) }
    }
    #expect(
      try await store.job(first.claims[0].job)?.image?.isKept == false, "its image was evicted")
    for image in [known, new] {
      #expect(try await postgres.embeddedImage(image.digest) == image.content)
    }
    try await store.audit()
    await store.close()
  }

  @Test("a small image that is deleted while its next job completes is stored again")
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
      #expect(try transaction.markUnreferenced(9, for: instance) == [], "the image is not a file")
      continuation.yield()
      // Wait until the other transaction has found the image and waits for its row.
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
}
