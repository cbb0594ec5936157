import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

/// One instance completes a job while another one cancels its batch.
@Suite("Cancelling a batch in PostgreSQL while its jobs end", .timeLimit(.minutes(15)))
struct PostgresBatchCancellingTests {
  private let database: TestDatabase
  private let a, b: StoreUnderTest

  init() throws {
    database = try TestDatabase(in: .shared)
    a = try StoreUnderTest(in: database, ManualClock(.at(0))) { $0.isShared = true }
    b = try StoreUnderTest(in: database, a.clock) { $0.isShared = true }
  }

  /// Completes one of two jobs and cancels their batch once the trigger holds the completion.
  /// - Parameter waits: whether the cancellation waits for the completion; otherwise it ends before.
  private func cancel(
    whileHeldBy trigger: String, waits: Bool
  ) async throws -> (Job?, answer: BatchCounts?, last: Batch?) {
    let (batch, claims) = try await BatchCancellingTests.loading(2, in: a)
    _ = try await a.reserve(.sample(1), bytes: 7, as: JobID(at: .at(9)), limit: .max / 2)
    try database.block(trigger)
    let completion = Completion([claims[0]], change: BatchCancellingTests.succeed)
    async let completed = a.complete(completion)
    await database.expect(TestDatabase.isHeld("pg-write"))
    let answer: Batch?
    if waits {
      async let cancelled = b.base.cancel(batch.id)
      await database.expect(TestDatabase.waits("pg-write"))
      try database.unblock()
      answer = try await cancelled
    } else {
      answer = try? await b.base.cancel(batch.id)
      try database.unblock()
    }
    let job = try await completed.jobs[0]
    let other = try await a.complete(
      Completion([claims[1]], change: BatchCancellingTests.succeed))
    #expect(other.jobs[0]?.phase == .cancelled)
    let last = try await b.base.batch(batch.id)
    try await a.audit()
    await a.close()
    await b.close()
    return (job, answer?.shownCounts, last)
  }

  @Test("a job whose transaction has not checked the batch ends as cancelled")
  func unchecked() async throws {
    let (job, answer, last) = try await cancel(
      whileHeldBy: "TRIGGER gate BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NEW.phase = 2)",
      waits: false)
    #expect(job?.phase == .cancelled && job?.image == nil)
    #expect(answer?[.cancelled] == 2 && answer == last?.counts)
  }

  @Test("the cancellation waits for a job whose transaction has checked the batch, and counts it")
  func checked() async throws {
    let (job, answer, last) = try await cancel(
      whileHeldBy: """
        CONSTRAINT TRIGGER gate AFTER UPDATE ON jobs DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.phase = 2)
        """, waits: true)
    #expect(job?.phase == .success)
    #expect(answer?[.success] == 1 && answer?[.cancelled] == 1 && answer == last?.counts)
  }
}
