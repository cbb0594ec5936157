import Jobs
import Store
import TestSupport
import Testing

@testable import Engine

/// Work is counted here and not timed: what a job costs is rows and transactions, on a loaded machine too.
@Suite("Many jobs for one origin", .serialized, .timeLimit(.minutes(5)))
struct CrowdTests {
  /// Each takes ten times as long with a sanitizer.
  private static let many = Sanitizer.isHere ? 500 : 5_000

  @Test(
    "that are equal share each try, however soon it ends",
    arguments: [Crowd.Origin.refuses, .good, .slow], [1, 64])
  func equal(origin: Crowd.Origin, workers: Int) async throws {
    let count = workers == 1 ? Self.many : Self.many / 5
    let tries = origin == .refuses ? 2 : 1
    let crowd = try await Crowd(origin, workers: workers)
    let before = try await crowd.work()
    try await crowd.submit(count, areEqual: true) {
      $0.maxAttempts = tries
      if origin == .slow { $0.timeout = .seconds(4) }
    }
    try await until { try await crowd.count(.success, .failure) == count }
    #expect(try await crowd.count(.success) == (origin == .good ? count : 0))
    // A try may be begun by some while the others are on their way to it.
    let requests = crowd.origin.requests
    #expect(requests >= tries && requests <= tries + 2)
    let after = try await crowd.work()
    // Submitted; woken, parked, claimed and ended a try; one that comes as a try ends is parked once more.
    #expect(after.changes - before.changes <= count * (2 + 4 * requests) + 200)
    // As they go by the hundreds: less than one a job, with the vain looks of idle workers.
    #expect(after.transactions - before.transactions < count)
    try await crowd.close()
  }

  @Test(
    "that differ cost each its own work and no more", arguments: [Crowd.Origin.refuses, .good],
    [1, 64])
  func different(origin: Crowd.Origin, workers: Int) async throws {
    // The good ones are as many transfers and decodes.
    let count = origin == .good ? 250 : workers == 1 ? Self.many : Self.many / 5
    let crowd = try await Crowd(origin, workers: workers)
    let before = try await crowd.work()
    try await crowd.submit(count, areEqual: false) { $0.maxAttempts = 1 }
    try await until { try await crowd.count(.success, .failure) == count }
    #expect(try await crowd.count(.success) == (origin == .good ? count : 0))
    let after = try await crowd.work()
    // Submitted, claimed, ended; parked perhaps, and an image has rows of its own.
    #expect(after.changes - before.changes <= count * (origin == .good ? 9 : 4) + 200)
    #expect(after.transactions - before.transactions <= count * 4 + 200)
    try await crowd.close()
  }

  @Test(
    "are let go of when the service stops, and none is lost",
    arguments: Crowd.Origin.allCases, [1, 64])
  func stopped(origin: Crowd.Origin, workers: Int) async throws {
    let count = origin == .refuses ? Self.many : Self.many / 5
    for areEqual in [true, false] {
      let crowd = try await Crowd(origin, workers: workers)
      try await crowd.submit(count, areEqual: areEqual)
      try await until { crowd.origin.requests > 0 }
      let before = try await crowd.work()
      let began = ContinuousClock.now
      try await crowd.stop(within: .milliseconds(100))
      // Some tenths of a second; minutes where something goes round and round.
      #expect(ContinuousClock.now - began < .seconds(20))
      let after = try await crowd.work()
      #expect(after.transactions - before.transactions <= 2_000)
      #expect(after.changes - before.changes <= 4 * count)
      let all = try await crowd.count(.queued, .loading, .success, .failure)
      #expect(all == count)
      while try await crowd.store.recoverExpired(500).count == 500 {}
      #expect(try await crowd.count(.loading) == 0)
      try await crowd.close()
    }
  }

  @Test("take more of their kind while they are tried again and again")
  func submitting() async throws {
    let crowd = try await Crowd(.refuses, workers: 1)
    try await crowd.submit(1_500, areEqual: true) { $0.maxAttempts = 3 }
    // Each is answered however many are queued and on their way.
    for _ in 0..<20 { try await crowd.submit(20, areEqual: true) { $0.maxAttempts = 3 } }
    try await until { try await crowd.count(.failure) == 1_900 }
    try await crowd.close()
  }
}
