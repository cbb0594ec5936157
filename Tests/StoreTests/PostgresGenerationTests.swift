import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("Generations of images in PostgreSQL")
struct PostgresGenerationTests {
  private let digest = ImageDigest.sample(1)

  private func open(_ database: TestDatabase, _ clock: ManualClock) throws -> SQLJobStore {
    var configuration = SQLJobStore.Configuration(url: database.url)
    configuration.now = { clock.now }
    configuration.isShared = true
    return try SQLJobStore(configuration)
  }

  private func reserve(
    _ store: SQLJobStore, as instance: Instance, _ holder: JobID = JobID(at: .at(1))
  ) async throws -> Reservation {
    try await store.reserve(digest, bytes: 100_000, as: holder, of: instance, limit: .max / 2)
  }

  private func name(_ reservation: Reservation) throws -> ImageName {
    guard case .reserved(let name, _) = reservation else {
      throw StoreError.unavailable(detail: "\(reservation)")
    }
    return name
  }

  @Test(
    "an evicted image that is stored again has a new generation")
  func comesBack() async throws {
    let clock = ManualClock(.at(0))
    let database = try TestDatabase(in: .shared)
    let store = try open(database, clock)
    let lost = try await store.register(for: .seconds(10))
    let (holder, another) = (JobID(at: .at(1)), JobID(at: .at(2)))
    let first = try name(await reserve(store, as: lost, holder))
    #expect(try name(await reserve(store, as: lost, another)) == first, "while it is stored")
    for holder in [holder, another] { try await store.release(holder) }
    #expect(try await store.imagesPendingDeletion(9, of: lost) == [])
    #expect(try await store.unreferencedImages(9, for: lost) == [first])
    #expect(try await store.imagesPendingDeletion(9, of: lost) == [first], "as after a lost answer")

    clock.set(.at(10_001))
    let other = try await store.register(for: .seconds(10))
    #expect(
      try await store.unreferencedImages(9, for: other) == [],
      "the other instance is still deleting it")
    _ = try await store.recoverExpired(9)
    #expect(try await reserve(store, as: other) == .pendingDeletion)
    #expect(try await store.unreferencedImages(9, for: other) == [first])
    try await store.confirmDeletion([first])
    let second = try name(await reserve(store, as: other))
    #expect(second.digest == digest && second != first)

    // The lost instance reports its deletion late.
    try await store.confirmDeletion([first])
    #expect(try await store.keptImage(digest) == KeptImage(second, bytes: 100_000))
    #expect(try await store.markOrphans([first, second], for: other) == [first])
    try await store.confirmDeletion([first])
    #expect(try await store.keptImage(digest)?.name == second)
    try await store.audit()
    await store.close()
    withExtendedLifetime(database) {}
  }
}
