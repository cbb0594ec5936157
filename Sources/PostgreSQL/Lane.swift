internal import Executors
internal import Foundation
internal import Jobs
internal import Metrics
internal import Synchronization

/// Requests that wait for threads which each have a connection. Those of one kind are merged into one transaction: however many
/// callers wait, they share its statements and its commit.
///
/// A transaction that was in others' way, or whose connection broke, is made again. One that fails otherwise is undone, and
/// each of its requests made alone, so that it fails alone.
final class Lane<Request: Sendable, Answer: Sendable>: Sendable {
  typealias Outcome = Result<Answer, StoreError>

  /// What a lane does.
  struct Work: Sendable {
    /// Requests in one transaction, at the most.
    var limit = 512
    /// False: each request is a look of its own.
    var writes = true
    /// Requests of one kind share a transaction; nil: a request has one of its own.
    var kind: @Sendable (Request) -> Int? = { _ in nil }
    /// Which kind's transactions begin some time apart, so that what comes meanwhile is merged into the next one.
    var pacing = Pacing()
    /// What stands for the clock by which they are paced, in tests.
    var now: @Sendable () -> ContinuousClock.Instant = { .now }
    /// Whether its caller is promised that a crash of the server undoes nothing of it.
    var isSynced: @Sendable (Request) -> Bool = { _ in true }
    /// Does what the requests ask for; `isRepeated` where an earlier try of the same may have been committed.
    var body: @Sendable (Transaction, [Request], _ isRepeated: Bool) throws -> [Outcome]
  }

  private let line = WaitingLine<Request, Outcome>()
  private let work: Work

  /// - Parameter threads: how many, each with a connection.
  init(named name: String, threads: Int = 1, _ settings: Session.Settings, _ work: Work) {
    self.work = work
    for _ in 0..<threads {
      line.begin()
      startThread(named: name) { [line, work] in
        LaneThread(line, Session(settings.named(name)), work, of: name).run()
        line.end()
      }
    }
  }

  deinit { line.close() }

  /// Does as asked; returns once that is committed.
  func perform(_ request: Request) async throws(StoreError) -> Answer {
    let outcome: Outcome = await withCheckedContinuation { continuation in
      let entry = WaitingEntry(request, of: work.kind(request), continuation)
      if !line.add(entry) {
        continuation.resume(returning: .failure(.unavailable(detail: "the store is closed")))
      }
    }
    return try outcome.get()
  }

  /// Requests that no thread has taken yet.
  var waiting: Int { line.count }

  /// Takes no more requests, and waits for those taken.
  func close() async {
    line.close()
    await withCheckedContinuation { line.whenEnded($0) }
  }
}

/// One thread of a lane.
private struct LaneThread<Request: Sendable, Answer: Sendable> {
  typealias Outcome = Result<Answer, StoreError>
  private let line: WaitingLine<Request, Outcome>
  private let session: Session
  private let work: Lane<Request, Answer>.Work
  private let duration = Metrics.Timer(label: "imagefetch_store_commit_seconds")
  private let size = Metrics.Recorder(label: "imagefetch_store_commit_operations")
  private let wait: Metrics.Timer
  /// How often a transaction is made again that others were in the way of.
  private static var conflicts: Int { 12 }

  init(
    _ line: WaitingLine<Request, Outcome>, _ session: Session, _ work: Lane<Request, Answer>.Work,
    of lane: String
  ) {
    wait = Metrics.Timer(label: "imagefetch_store_wait_seconds", dimensions: [("lane", lane)])
    self.line = line
    self.session = session
    self.work = work
  }

  func run() {
    var pacing = work.pacing
    while true {
      let entries = line.take(work.limit, by: &pacing, work.now)
      guard let first = entries.first else { break }
      wait.recordSeconds((ContinuousClock.now - first.began).inSeconds)
      serve(entries)
    }
    session.disconnect()
  }

  private func serve(_ entries: [WaitingEntry<Request, Outcome>]) {
    do {
      let outcomes = try attempt(entries.map(\.request))
      for (entry, outcome) in zip(entries, outcomes) { entry.finish(outcome) }
    } catch {
      switch error {
      case Fault.lost, Fault.late:
        // Those behind have waited as long: their callers are told now, not one timeout after the other.
        for entry in entries + line.takeAll() { entry.finish(.failure(StoreError(cause: error))) }
      default:
        guard entries.count > 1 else {
          return entries.forEach { $0.finish(.failure(StoreError(cause: error))) }
        }
        serveEach(entries)
      }
    }
  }

  /// Each alone. Where the server does not answer one, it is not asked for the others either: they have waited as long.
  private func serveEach(_ entries: [WaitingEntry<Request, Outcome>]) {
    for (index, entry) in entries.enumerated() {
      do { entry.finish(try attempt([entry.request])[0]) } catch {
        let outcome = Outcome.failure(StoreError(cause: error))
        switch error {
        case Fault.lost, Fault.late:
          for entry in entries[index...] + line.takeAll() { entry.finish(outcome) }
          return
        default: entry.finish(outcome)
        }
      }
    }
  }

  /// Makes one transaction of them, again where that may help.
  private func attempt(_ requests: [Request]) throws -> [Outcome] {
    var (conflicts, isCommitting, wasLost) = (0, false, false)
    while true {
      do { return try once(requests, isRepeated: isCommitting, &isCommitting) } catch {
        switch error {
        case Fault.conflict where conflicts < Self.conflicts:
          conflicts += 1
          Thread.sleep(forTimeInterval: .random(in: 0...0.002) * Double(conflicts))
        case Fault.lost where !wasLost:
          wasLost = true
          session.disconnect()
        default:
          switch error {
          case Fault.lost, Fault.late: session.disconnect()
          default: break
          }
          throw error
        }
      }
    }
  }

  private func once(
    _ requests: [Request], isRepeated: Bool, _ isCommitting: inout Bool
  ) throws -> [Outcome] {
    guard work.writes else { return try session.look { try work.body($0, requests, false) } }
    let start = ContinuousClock.now
    let isSynced = requests.contains(where: work.isSynced)
    let outcomes = try session.transaction(isSynced: isSynced, isCommitting: &isCommitting) {
      try work.body($0, requests, isRepeated)
    }
    duration.recordSeconds((ContinuousClock.now - start).inSeconds)
    size.record(requests.count)
    return outcomes
  }
}
