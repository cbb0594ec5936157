import Synchronization
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("The order of requests to PostgreSQL", .timeLimit(.minutes(15)))
struct PostgresPacingTests {
  private static let pace = Duration.milliseconds(10)

  /// A clock that the test sets.
  private final class LaneClock: Sendable {
    private let moment = Mutex(ContinuousClock.now)
    var now: ContinuousClock.Instant { moment.withLock { $0 } }

    func advance(by duration: Duration) { moment.withLock { $0 = $0 + duration } }
  }

  /// Records the requests of each transaction.
  private final class Served: Sendable {
    private let all = Mutex<[[Int?]]>([])
    var transactions: [[Int?]] { all.withLock { $0 } }

    func note(_ requests: [Int?]) { all.withLock { $0.append(requests) } }
  }

  @Test("transactions of the paced kind keep an interval, and others run as soon as possible")
  func turns() {
    let start = ContinuousClock.now
    func at(_ milliseconds: Int) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }
    var pacing = Pacing(0, Self.pace)
    #expect(pacing.next(among: [], at: at(0)) == .wait(nil))
    #expect(pacing.next(among: [0, nil], at: at(0)) == .serve(0), "the first one does not wait")
    pacing.recordStart(of: 0, at: at(0))
    #expect(pacing.next(among: [0, 0], at: at(4)) == .wait(.milliseconds(6)))
    #expect(
      pacing.next(among: [0, nil, 1], at: at(4)) == .serve(1), "an unpaced request does not wait")
    #expect(
      pacing.next(among: [0, 1, nil], at: at(4)) == .serve(1), "another kind does not wait either")
    #expect(pacing.next(among: [0, nil], at: at(10)) == .serve(1), "requests alternate")
    pacing.recordStart(of: nil, at: at(10))
    #expect(pacing.next(among: [nil, nil, 0], at: at(11)) == .serve(2), "the interval is over")
    pacing.recordStart(of: 0, at: at(11))
    #expect(
      pacing.next(among: [0], at: at(20)) == .wait(.milliseconds(1)), "the interval is unchanged")
    #expect(pacing.next(among: [0], at: at(21)) == .serve(0))
  }

  @Test("requests run in order if no kind is paced")
  func order() {
    var pacing = Pacing()
    let moment = ContinuousClock.now
    for kinds: [Int?] in [[0, nil], [nil, 0], [1, 0]] {
      #expect(pacing.next(among: kinds, at: moment) == .serve(0))
      pacing.recordStart(of: kinds[0], at: moment)
    }
  }

  @Test(
    "neither of two streams delays the other by more than one transaction",
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
      pacing.recordStart(of: line[place], at: moment)
      if line[place] == 0 { paced.append(moment) } else { others += 1 }
      moment = moment + cost
    }
    let gaps = zip(paced, paced.dropFirst()).map { $0.duration(to: $1) }
    #expect(gaps.allSatisfy { $0 >= Self.pace && $0 <= max(Self.pace + cost, cost * 2) })
    #expect(others >= paced.count - 1)
  }

  @Test(
    "tasks do not use the interval of paced changes, however many follow each other")
  func tasks() async throws {
    let database = try TestDatabase(in: .shared)
    let (clock, served) = (LaneClock(), Served())
    let settings = Session.Settings(SQLJobStore.Configuration(url: database.url))
    let lane = RequestThreads<Int?, Void>(
      named: "pg-test", settings,
      .init(
        kind: { $0 }, pacing: Pacing(0, Self.pace), now: { clock.now },
        body: { _, requests, _ in
          served.note(requests)
          return requests.map { _ in .success(()) }
        }))
    try await lane.perform(0)
    // The clock stands still, so the paced request has to wait.
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
