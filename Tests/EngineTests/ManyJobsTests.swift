import Jobs
import SQL
import TestSupport
import Testing

@testable import Engine

/// Counts rows and transactions instead of time, so that the results do not depend on the load of the
/// machine.
@Suite("Many jobs for one origin", .serialized, .timeLimit(.minutes(15)))
struct ManyJobsTests {
  /// Fewer jobs with a sanitizer, where each takes ten times as long.
  private static let many = Sanitizer.isHere ? 500 : 5_000

  @Test(
    "many equal jobs share each attempt, however soon it ends",
    arguments: [ManyJobsEngine.Origin.refuses, .good, .slow], [1, 64])
  func equal(origin: ManyJobsEngine.Origin, workers: Int) async throws {
    let count = workers == 1 ? Self.many : Self.many / 5
    let tries = origin == .refuses ? 2 : 1
    let crowd = try await ManyJobsEngine(origin, workers: workers)
    let before = crowd.work
    try await crowd.submit(count, areEqual: true) {
      $0.maxAttempts = tries
      if origin == .slow { $0.timeout = .seconds(4) }
    }
    try await until { try await crowd.count(.success, .failure) == count }
    #expect(try await crowd.count(.success) == (origin == .good ? count : 0))
    // Some jobs may begin an attempt before the others have joined it.
    let requests = crowd.origin.requests
    #expect(requests >= tries && requests <= tries + 2)
    let after = crowd.work
    // Rows per job: submitted, with its place in the queue; for each request woken, deferred, claimed, ended; one deferred
    // again at the end. Jobs that end together share the changes of counters.
    #expect(after.changes - before.changes <= count * (3 + 4 * requests) + 200)
    // Jobs are changed by the hundred: less than one transaction per job, with the empty claims of idle
    // workers.
    #expect(after.transactions - before.transactions < count)
    try await crowd.close()
  }

  @Test(
    "many different jobs each cost a few rows only",
    arguments: [ManyJobsEngine.Origin.refuses, .good],
    [1, 64])
  func different(origin: ManyJobsEngine.Origin, workers: Int) async throws {
    // Fewer successful jobs, because each needs a transfer and a decode.
    let count = origin == .good ? 250 : workers == 1 ? Self.many : Self.many / 5
    let crowd = try await ManyJobsEngine(origin, workers: workers)
    let before = crowd.work
    try await crowd.submit(count, areEqual: false) { $0.maxAttempts = 1 }
    try await until { try await crowd.count(.success, .failure) == count }
    #expect(try await crowd.count(.success) == (origin == .good ? count : 0))
    let after = crowd.work
    // Rows per job: submitted, with its place in the queue; claimed, ended and perhaps deferred, with three to six
    // counters each; and those of its image.
    #expect(after.changes - before.changes <= count * (origin == .good ? 17 : 15) + 200)
    #expect(after.transactions - before.transactions <= count * 4 + 200)
    try await crowd.close()
  }

  @Test(
    "many jobs are requeued when the service stops, and none is lost",
    arguments: ManyJobsEngine.Origin.allCases, [1, 64])
  func stopped(origin: ManyJobsEngine.Origin, workers: Int) async throws {
    let count = origin == .refuses ? Self.many : Self.many / 5
    for areEqual in [true, false] {
      let crowd = try await ManyJobsEngine(origin, workers: workers)
      try await crowd.submit(count, areEqual: areEqual)
      try await until { crowd.origin.requests > 0 }
      let before = crowd.work
      let began = ContinuousClock.now
      try await crowd.stop(within: .milliseconds(100))
      // It takes some tenths of a second, but minutes if jobs are claimed again and again.
      #expect(ContinuousClock.now - began < .seconds(20))
      let after = crowd.work
      #expect(after.transactions - before.transactions <= 2_000)
      #expect(after.changes - before.changes <= 4 * count)
      let all = try await crowd.count(.queued, .loading, .success, .failure)
      #expect(all == count)
      while try await crowd.store.recoverExpired(500).count == 500 {}
      #expect(try await crowd.count(.loading) == 0)
      try await crowd.close()
    }
  }

  @Test("further equal jobs can be submitted while many are being retried")
  func submitting() async throws {
    let crowd = try await ManyJobsEngine(.refuses, workers: 1)
    try await crowd.submit(1_500, areEqual: true) { $0.maxAttempts = 3 }
    // Each submission is answered while many jobs are queued and being retried.
    for _ in 0..<20 { try await crowd.submit(20, areEqual: true) { $0.maxAttempts = 3 } }
    try await until { try await crowd.count(.failure) == 1_900 }
    try await crowd.close()
  }
}
