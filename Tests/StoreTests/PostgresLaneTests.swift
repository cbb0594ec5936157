import Synchronization
import TestSupport
import Testing

@testable import PostgreSQL

@Suite("Whose turn it is to write to PostgreSQL", .timeLimit(.minutes(5)))
struct PostgresLaneTests {
  private static let pace = Duration.milliseconds(10)

  /// A clock that a test moves.
  private final class LaneClock: Sendable {
    private let moment = Mutex(ContinuousClock.now)
    var now: ContinuousClock.Instant { moment.withLock { $0 } }

    func advance(by duration: Duration) { moment.withLock { $0 = $0 + duration } }
  }

  /// The requests of each transaction.
  private final class Served: Sendable {
    private let all = Mutex<[[Int?]]>([])
    var transactions: [[Int?]] { all.withLock { $0 } }

    func note(_ requests: [Int?]) { all.withLock { $0.append(requests) } }
  }

  @Test("what is paced begins some time apart, and all else as soon as it can")
  func turns() {
    let start = ContinuousClock.now
    func at(_ milliseconds: Int) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }
    var pacing = Pacing(0, Self.pace)
    #expect(pacing.next(among: [], at: at(0)) == .wait(nil))
    #expect(pacing.next(among: [0, nil], at: at(0)) == .serve(0), "where there is little to do")
    pacing.begin(0, at: at(0))
    #expect(pacing.next(among: [0, 0], at: at(4)) == .wait(.milliseconds(6)))
    #expect(pacing.next(among: [0, nil, 1], at: at(4)) == .serve(1), "it waits for nobody's time")
    #expect(pacing.next(among: [0, 1, nil], at: at(4)) == .serve(1), "nor does another kind")
    #expect(pacing.next(among: [0, nil], at: at(10)) == .serve(1), "the last one was paced")
    pacing.begin(nil, at: at(10))
    #expect(pacing.next(among: [nil, nil, 0], at: at(11)) == .serve(2), "its time has come")
    pacing.begin(0, at: at(11))
    #expect(pacing.next(among: [0], at: at(20)) == .wait(.milliseconds(1)), "nothing else moved it")
    #expect(pacing.next(among: [0], at: at(21)) == .serve(0))
  }

  @Test("all goes in its order where nothing is paced")
  func order() {
    var pacing = Pacing()
    let moment = ContinuousClock.now
    for kinds: [Int?] in [[0, nil], [nil, 0], [1, 0]] {
      #expect(pacing.next(among: kinds, at: moment) == .serve(0))
      pacing.begin(kinds[0], at: moment)
    }
  }

  @Test(
    "of two streams neither keeps the other waiting for more than a transaction beyond its time",
    arguments: [1, 4, 25], [[0, nil], [nil, 0]] as [[Int?]])
  func streams(milliseconds: Int, line: [Int?]) {
    let cost = Duration.milliseconds(milliseconds)
    var pacing = Pacing(0, Self.pace)
    var moment = ContinuousClock.now
    var (paced, others): ([ContinuousClock.Instant], Int) = ([], 0)
    for _ in 0..<500 {
      guard case .serve(let place) = pacing.next(among: line, at: moment) else {
        Issue.record("it waits")
        return
      }
      pacing.begin(line[place], at: moment)
      if line[place] == 0 { paced.append(moment) } else { others += 1 }
      moment = moment + cost
    }
    let gaps = zip(paced, paced.dropFirst()).map { $0.duration(to: $1) }
    #expect(gaps.allSatisfy { $0 >= Self.pace && $0 <= max(Self.pace + cost, cost * 2) })
    #expect(others >= paced.count - 1)
  }

  @Test(
    "tasks take none of the time by which changes are paced, however many follow each other")
  func tasks() async throws {
    let database = try TestDatabase(in: .shared)
    let (clock, served) = (LaneClock(), Served())
    let settings = Session.Settings(PostgresJobStore.Configuration(url: database.url))
    let lane = Lane<Int?, Void>(
      named: "pg-test", settings,
      .init(
        kind: { $0 }, pacing: Pacing(0, Self.pace), now: { clock.now },
        body: { _, requests, _ in
          served.note(requests)
          return requests.map { _ in .success(()) }
        }))
    try await lane.perform(0)
    // The clock stands still: it is not this one's time.
    async let change: Void = lane.perform(0)
    for _ in 0..<20 { try await lane.perform(nil) }
    let expected: [[Int?]] = [[0]] + Array(repeating: [nil], count: 20)
    #expect(served.transactions == expected)
    clock.advance(by: Self.pace)
    try await change
    #expect(served.transactions == expected + [[0]])
    await lane.close()
    withExtendedLifetime(database) {}
  }
}
