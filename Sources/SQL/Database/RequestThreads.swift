internal import Executors
internal import Foundation
internal import Glibc
package import Jobs
internal import Metrics
internal import Synchronization

/// Runs a store's requests in place of its threads. Tests use one: it decides when a request runs, and whether it fails.
package protocol RequestRunner: Sendable {
  /// Runs a request, or fails in its place. Only one request of a database may run at a time.
  /// - Parameters:
  ///   - call: The function of the store that makes the request, such as `complete(_:)`.
  ///   - request: Runs the request in a transaction and commits it. Blocks the calling thread.
  func run<Answer: Sendable>(
    _ call: String, _ request: @Sendable () throws(StoreError) -> Answer
  ) async throws(StoreError) -> Answer
}

/// A queue of requests and the threads that serve it, each with its own connection. Requests of one
/// kind are merged into one transaction, so that many callers share its statements and its commit.
///
/// A transaction is repeated after a conflict or a broken connection. After another error it is
/// rolled back and each of its requests runs alone, so that only the faulty one fails.
final class RequestThreads<Request: Sendable, Answer: Sendable>: Sendable {
  typealias Outcome = Result<Answer, StoreError>

  /// The kind of work and its limits.
  struct Settings: Sendable {
    /// The maximum number of requests in one transaction.
    var limit = 512
    /// `false` if the requests only read: each request runs its own queries.
    var writes = true
    /// Requests of the same kind share a transaction; a request without a kind has its own.
    var kind: @Sendable (Request) -> Int? = { _ in nil }
    /// The minimum interval between transactions of one kind, so that requests that arrive
    /// meanwhile are merged.
    var pacing = Pacing()
    /// The clock for the interval; tests replace it.
    var now: @Sendable () -> ContinuousClock.Instant = { .now }
    /// Whether the commit must survive a crash of the server.
    var isSynced: @Sendable (Request) -> Bool = { _ in true }
    /// Whether the request needs space on the disk. Such requests are rejected while it is almost full.
    var isAdding: @Sendable (Request) -> Bool = { _ in false }
    /// Executes the requests. `isRepeated` is true if an earlier try may have been committed.
    var body: @Sendable (Transaction, [Request], _ isRepeated: Bool) throws -> [Outcome]
  }

  private let line = RequestQueue<Request, Outcome>()
  private let work: Settings
  /// Serves the requests in place of the threads.
  private let runner: (any RequestRunner)?
  /// Does the work of a thread. The runner calls it for one request at a time.
  nonisolated(unsafe) private let served: RequestThread<Request, Answer>?

  /// - Parameter threads: the number of threads; each has its own connection.
  init(named name: String, threads: Int = 1, _ settings: Session.Settings, _ work: Settings) {
    self.work = work
    runner = settings.runner
    let thread = { @Sendable [line] in
      RequestThread(line, Session(settings, named: name, mayWrite: work.writes), work, of: name)
    }
    served = runner == nil ? nil : thread()
    guard runner == nil else { return }
    for _ in 0..<threads {
      line.threadStarted()
      startThread(named: name) { [line] in
        thread().run()
        line.threadEnded()
      }
    }
  }

  deinit { line.close() }

  /// Executes the request and returns after the commit.
  /// - Parameter call: the function of the store that makes the request.
  func perform(
    _ request: Request, for call: String = #function
  ) async throws(StoreError) -> Answer {
    if let runner {
      return try await runner.run(call) { () throws(StoreError) in try serve(request) }
    }
    let outcome: Outcome = await withCheckedContinuation { continuation in
      add(request) { continuation.resume(returning: $0) }
    }
    return try outcome.get()
  }

  private func add(_ request: Request, _ finish: @escaping @Sendable (Outcome) -> Void) {
    if !line.add(QueuedRequest(request, of: work.kind(request), finish)) {
      finish(.failure(.unavailable(detail: "the store is closed")))
    }
  }

  /// Executes the request on the calling thread.
  private func serve(_ request: Request) throws(StoreError) -> Answer {
    let outcome = Mutex<Outcome?>(nil)
    add(request) { result in outcome.withLock { $0 = result } }
    served?.serve(line.dequeueAll())
    guard let result = outcome.withLock(\.self) else {
      throw .unavailable(detail: "the request did not run")
    }
    return try result.get()
  }

  /// The number of requests so far.
  var accepted: Int { line.accepted }

  /// The number of requests that no thread has started.
  var waiting: Int { line.count }

  /// Rejects further requests and waits for the accepted ones.
  func close() async {
    line.close()
    await withCheckedContinuation { line.whenEnded($0) }
  }
}

/// One thread with its connection.
private struct RequestThread<Request: Sendable, Answer: Sendable> {
  typealias Outcome = Result<Answer, StoreError>
  private let line: RequestQueue<Request, Outcome>
  private let session: Session
  private let work: RequestThreads<Request, Answer>.Settings
  private let duration = Metrics.Timer(label: "imagefetch_store_commit_seconds")
  private let size = Metrics.Recorder(label: "imagefetch_store_commit_operations")
  private let wait: Metrics.Timer
  /// The maximum number of repetitions after conflicts.
  private static var conflicts: Int { 12 }

  init(
    _ line: RequestQueue<Request, Outcome>, _ session: Session,
    _ work: RequestThreads<Request, Answer>.Settings,
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
      let entries = line.dequeue(work.limit, by: &pacing, work.now)
      guard let first = entries.first else { break }
      wait.recordSeconds((ContinuousClock.now - first.began).inSeconds)
      serve(entries)
    }
    session.disconnect()
  }

  /// Serves requests in one transaction. On a full disk, those that add something are rejected, and the others use the
  /// reserve.
  func serve(_ given: [QueuedRequest<Request, Outcome>]) {
    guard !given.isEmpty else { return }
    let database = session.settings.database
    var entries = given
    func rejectAdding() {
      for entry in entries where work.isAdding(entry.request) { entry.finish(.failure(.full)) }
      entries.removeAll { work.isAdding($0.request) }
    }
    if entries.contains(where: { work.isAdding($0.request) }), database.isLow { rejectAdding() }
    guard !entries.isEmpty else { return }
    do {
      let outcomes = try attempt(entries.map(\.request))
      for (entry, outcome) in zip(entries, outcomes) { entry.finish(outcome) }
    } catch {
      switch error {
      case Fault.full where entries.contains { work.isAdding($0.request) }:
        rejectAdding()
        serve(entries)
      case Fault.full where database.freeReserve(): serve(entries)
      case Fault.lost, Fault.late:
        // The waiting requests have waited as long, so they fail now, instead of one timeout after
        // the other.
        for entry in entries + line.dequeueAll() {
          entry.finish(.failure(StoreError(cause: error)))
        }
      default:
        guard entries.count > 1 else {
          return entries.forEach { $0.finish(.failure(StoreError(cause: error))) }
        }
        serveEach(entries)
      }
    }
  }

  /// Runs each request alone. If the server does not answer, all remaining requests fail at once,
  /// because they have waited as long.
  private func serveEach(_ entries: [QueuedRequest<Request, Outcome>]) {
    for (index, entry) in entries.enumerated() {
      do { entry.finish(try attempt([entry.request])[0]) } catch {
        let outcome = Outcome.failure(StoreError(cause: error))
        switch error {
        case Fault.lost, Fault.late:
          for entry in entries[index...] + line.dequeueAll() { entry.finish(outcome) }
          return
        default: entry.finish(outcome)
        }
      }
    }
  }

  /// Runs the requests in one transaction and repeats it after a conflict or a lost connection.
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
    guard work.writes else { return try session.read { try work.body($0, requests, false) } }
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

/// A waiting request and its caller.
struct QueuedRequest<Request: Sendable, Outcome: Sendable>: Sendable {
  let request: Request
  /// Requests of the same kind can be merged; `nil` if this one can't.
  let kind: Int?
  let began = ContinuousClock.now
  /// Passes the outcome to the caller.
  let finish: @Sendable (Outcome) -> Void

  init(_ request: Request, of kind: Int?, _ finish: @escaping @Sendable (Outcome) -> Void) {
    (self.request, self.kind, self.finish) = (request, kind, finish)
  }
}

/// The requests that no thread has started. A mutex protects all state.
final class RequestQueue<Request: Sendable, Outcome: Sendable>: @unchecked Sendable {
  typealias Entry = QueuedRequest<Request, Outcome>
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let arrived = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var waiting: [Entry] = []
  private var isClosed = false
  private var acceptedCount = 0
  private var threads = 0
  private var ends: [CheckedContinuation<Void, Never>] = []

  init() {
    pthread_mutex_init(mutex, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    // The monotonic clock, so that a change of the system time does not extend a wait.
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(arrived, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(arrived)
    pthread_mutex_destroy(mutex)
    arrived.deallocate()
    mutex.deallocate()
  }

  func threadStarted() { locked { threads += 1 } }

  func threadEnded() {
    let ended = locked {
      threads -= 1
      defer { if threads == 0 { ends = [] } }
      return threads == 0 ? ends : []
    }
    for continuation in ended { continuation.resume() }
  }

  func whenEnded(_ continuation: CheckedContinuation<Void, Never>) {
    let hasEnded = locked {
      if threads > 0 { ends.append(continuation) }
      return threads == 0
    }
    if hasEnded { continuation.resume() }
  }

  var count: Int { locked { waiting.count } }

  /// The number of requests added so far.
  var accepted: Int { locked { acceptedCount } }

  /// - Returns: `false` if the queue is closed.
  func add(_ entry: Entry) -> Bool {
    locked {
      guard !isClosed else { return false }
      // The thread that was signalled for an earlier request of this kind also takes this one.
      let isMerged = entry.kind != nil && waiting.contains { $0.kind == entry.kind }
      waiting.append(entry)
      acceptedCount += 1
      if !isMerged { pthread_cond_signal(arrived) }
      return true
    }
  }

  /// Waits for the next request and returns it with the requests that can be merged. Returns an
  /// empty array once the queue is closed and empty.
  func dequeue(
    _ limit: Int, by pacing: inout Pacing, _ now: () -> ContinuousClock.Instant
  ) -> [Entry] {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while !waiting.isEmpty || !isClosed {
      let moment = now()
      switch pacing.next(among: waiting.map(\.kind), at: moment) {
      case .wait(let time): wait(atMost: time)
      case .serve(let place):
        pacing.recordStart(of: waiting[place].kind, at: moment)
        return dequeue(limit, from: place)
      }
    }
    return []
  }

  private func dequeue(_ limit: Int, from place: Int) -> [Entry] {
    guard let kind = waiting[place].kind else { return [waiting.remove(at: place)] }
    var (taken, left): ([Entry], [Entry]) = ([], [])
    for entry in waiting {
      if taken.count < limit, entry.kind == kind { taken.append(entry) } else { left.append(entry) }
    }
    waiting = left
    return taken
  }

  /// Waits for a signal or the timeout. Can return early.
  private func wait(atMost time: Duration?) {
    guard let time else {
      pthread_cond_wait(arrived, mutex)
      return
    }
    var end = timespec()
    clock_gettime(CLOCK_MONOTONIC, &end)
    let nanoseconds = end.tv_nsec + Int(time / .nanoseconds(1))
    end.tv_sec += nanoseconds / 1_000_000_000
    end.tv_nsec = nanoseconds % 1_000_000_000
    pthread_cond_timedwait(arrived, mutex, &end)
  }

  func dequeueAll() -> [Entry] {
    locked {
      defer { waiting = [] }
      return waiting
    }
  }

  func close() {
    locked { isClosed = true }
    pthread_cond_broadcast(arrived)
  }

  private func locked<Value>(_ body: () -> Value) -> Value {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }
}

/// Selects the next request for a thread of ``RequestThreads``.
///
/// Transactions of one kind keep a minimum interval, so that more requests share each of them.
/// Other requests gain nothing by waiting: they run as soon as possible, also ahead of requests of
/// the paced kind. If both may run, they alternate, so that neither has to wait for all of the
/// other.
struct Pacing: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// The next step of a thread.
  enum Next: Equatable {
    /// Serve the request at this index, together with requests that can be merged.
    case serve(Int)
    /// Wait for another request, for at most this time; `nil` means without a limit.
    case wait(Duration?)
  }

  /// The paced kind; `nil` if there is none.
  private let kind: Int?
  private let pace: Duration
  /// The earliest start of the kind's next transaction; `nil` before the first.
  private var due: Instant?
  private var wasPaced = false

  /// Serves all requests in order, without an interval.
  init() { (kind, pace) = (nil, .zero) }

  /// - Parameter pace: the minimum interval between the starts of two transactions of the kind. A
  ///   first request never waits.
  init(_ kind: Int, _ pace: Duration) { (self.kind, self.pace) = (kind, pace) }

  /// - Parameter kinds: the kinds of the waiting requests, in order.
  func next(among kinds: [Int?], at moment: Instant) -> Next {
    guard !kinds.isEmpty else { return .wait(nil) }
    guard let kind, let paced = kinds.firstIndex(of: kind) else { return .serve(0) }
    let other = kinds.firstIndex { $0 != kind }
    let left = due.map { moment.duration(to: $0) } ?? .zero
    if left > .zero {
      guard let other else { return .wait(left) }
      return .serve(other)
    }
    guard let other, wasPaced else { return .serve(paced) }
    return .serve(other)
  }

  /// Records that a request of this kind is being served.
  mutating func recordStart(of kind: Int?, at moment: Instant) {
    wasPaced = kind != nil && kind == self.kind
    if wasPaced { due = moment + pace }
  }
}
