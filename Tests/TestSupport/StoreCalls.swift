package import Jobs
package import SQL
internal import Synchronization

/// Runs the calls of a store on the calling tasks, one at a time. A test can hold them, or make them fail.
///
/// Most calls make one request; this type counts, holds and fails requests.
package actor StoreCalls: RequestRunner {
  /// A kind of call: a function of the store. With `isAnswer`, the call runs first, and its answer is then held or lost.
  package struct Call: Sendable, Hashable {
    let function: String
    var isAnswer = false

    package static let batch = Call(function: "batch(_:)")
    package static let cache = Call(function: "entries(for:)")
    package static let complete = Call(function: "complete(_:)")
    package static let confirmDeletion = Call(function: "confirmDeletion(_:)")
    package static let endStopped = Call(function: "endStoppedJobs(_:keptFor:deleting:)")
    package static let job = Call(function: "job(_:)")
    package static let lowData = Call(function: "jobsWithLowDataImages(after:count:)")
    package static let markOrphans = Call(function: "markOrphans(_:for:)")
    package static let pendingDeletion = Call(function: "imagesPendingDeletion(_:of:)")
    package static let remove = Call(function: "remove(_:if:)")
    package static let submit = Call(function: "submit(_:key:capacity:)")
    package static let unreferenced = Call(function: "unreferencedImages(_:for:)")
    package static let update = Call(function: "update(_:within:_:)")

    package var answer: Call { Call(function: function, isAnswer: true) }
  }

  /// Why a store makes a change a second time.
  package enum TryAgain: Sendable {
    /// A concurrent change was committed first, so the change is undone and repeated.
    case afterAnother(@Sendable () async throws -> Void)
    /// The result of the commit was lost, although it had succeeded.
    case afterCommit
  }

  /// Calls that always succeed at once, unless a test names them: an instance keeps its lease.
  private static let steady: Set<String> = [
    "register(for:)", "renew(_:for:)", "retire(_:)", "recoverExpired(_:)", "cacheCounts()",
    "counts()", "keptImage(_:)", "waitingMessages()", "waitingMessages(of:upTo:)",
    Call.pendingDeletion.function, Call.confirmDeletion.function,
  ]

  nonisolated let database: MemoryDatabase
  nonisolated let clock: Mutex<WallClock>
  private var counts: [String: Int] = [:]
  private var failures: [StoreError] = []
  private var failuresOf: [Call: [StoreError]] = [:]
  private var holdsAll = false
  private var heldCall: Call?
  private var held: [CheckedContinuation<Void, Never>] = []
  private var tryAgain: TryAgain?
  /// The number of updates since ``tear()``.
  private var updates: Int?
  private var witness: (@Sendable (_ before: Job?, _ after: Job) -> Void)?
  private var witnessed: [JobID: Job] = [:]

  init(_ database: MemoryDatabase, clock: @escaping WallClock) {
    self.database = database
    self.clock = Mutex(clock)
  }

  package func run<Answer: Sendable>(
    _ function: String, _ request: @Sendable () throws(StoreError) -> Answer
  ) async throws(StoreError) -> Answer {
    counts[function, default: 0] += 1
    if !Self.steady.contains(function) {
      if holdsAll { await wait() }
      if !failures.isEmpty { throw failures.removeFirst() }
    }
    try await reach(Call(function: function))
    if function.hasPrefix("update(") || function == Call.remove.function {
      await prepareChange(request)
    }
    let answer = try request()
    reportChanges()
    try await reach(Call(function: function, isAnswer: true))
    return answer
  }

  private func wait() async { await withCheckedContinuation { held.append($0) } }

  private func reach(_ call: Call) async throws(StoreError) {
    if heldCall == call { await wait() }
    if failuresOf[call]?.isEmpty == false { throw failuresOf[call]!.removeFirst() }
  }

  /// Makes the next calls throw these errors, one each.
  package func fail(with errors: [StoreError]) { failures += errors }

  /// Makes the next calls of this kind throw these errors, one each.
  package func fail(with errors: [StoreError], of call: Call) {
    failuresOf[call, default: []] += errors
  }

  /// Makes all calls wait until ``letGo()``.
  package func hold() { holdsAll = true }

  /// Makes calls of this kind wait until ``letGo()``.
  package func hold(_ call: Call) { heldCall = call }

  /// Resumes the calls that wait.
  package func letGo() {
    (holdsAll, heldCall) = (false, nil)
    for call in held { call.resume() }
    held = []
  }

  /// The number of calls that wait.
  package var heldCalls: Int { held.count }

  /// The number of calls of this kind so far.
  package func count(of call: Call) -> Int { counts[call.function] ?? 0 }

  /// Replaces the clock.
  package nonisolated func use(_ clock: @escaping WallClock) { self.clock.withLock { $0 = clock } }

  /// Holds back all events between the stores until ``releaseEvents()``.
  package nonisolated func holdEvents() { database.holdEvents() }

  package nonisolated func releaseEvents() { database.releaseEvents() }

  /// Opens a store between two requests.
  func open(_ body: @Sendable (StoreCalls) -> MemoryJobStore) -> MemoryJobStore { body(self) }

  /// Runs statements between two requests.
  package func query<Value: Sendable>(
    _ body: @Sendable (Transaction) throws -> Value
  ) throws -> Value { try database.query(body) }
}

/// Changes that are made twice, lost or reported.
extension StoreCalls {
  /// Makes the next update, or the next removal after its commit, run twice.
  package func makeAgain(_ tryAgain: TryAgain) { self.tryAgain = tryAgain }

  /// Makes every eighth update overwrite concurrent changes. Used to test that lost updates are detected.
  package func tear() { updates = 0 }

  private func prepareChange(_ request: @Sendable () throws(StoreError) -> some Sendable) async {
    switch tryAgain.take() {
    case nil: break
    case .afterCommit: _ = try? request()
    case .afterAnother(let change):
      execute(
        """
        CREATE TEMP TRIGGER conflict BEFORE UPDATE ON jobs BEGIN SELECT RAISE(ABORT, 'a conflict'); END
        """)
      _ = try? request()
      execute("DROP TRIGGER conflict")
      do { try await change() } catch { fatalError("\(error)") }
    }
    guard let number = updates else { return }
    updates = number + 1
    guard number % 8 == 7 else { return }
    for table in ["jobs", "queue"] {
      execute("CREATE TEMP TABLE \(table)_\(number) AS SELECT * FROM \(table)")
    }
    await Task.yield()
    execute(
      """
      DELETE FROM queue WHERE id IN (SELECT id FROM jobs_\(number)) AND id NOT IN (SELECT id FROM queue_\(number))
      """)
    for table in ["jobs", "queue"] {
      execute("INSERT OR REPLACE INTO \(table) SELECT * FROM \(table)_\(number)")
    }
  }

  private func execute(_ script: String) {
    do { try database.query { try $0.run(script) } } catch { fatalError("\(script): \(error)") }
  }

  /// Reports each change of a job to `witness`, in order.
  package func show(to witness: @escaping @Sendable (_ before: Job?, _ after: Job) -> Void) {
    self.witness = witness
    execute("CREATE TEMP TABLE changed (id BLOB PRIMARY KEY)")
    for (table, event) in [("jobs", "INSERT"), ("jobs", "UPDATE"), ("queue", "UPDATE")] {
      execute(
        """
        CREATE TEMP TRIGGER \(table)_\(event) AFTER \(event) ON \(table)
          BEGIN INSERT OR IGNORE INTO changed VALUES (new.id); END
        """)
    }
  }

  /// Reports the changes of the last request.
  private func reportChanges() {
    guard let witness else { return }
    do {
      let jobs = try database.query { transaction in
        let ids = try transaction.execute("DELETE FROM changed RETURNING id")
        return try ids.all.compactMap { try ids.id($0, 0).flatMap(transaction.job) }
      }
      for job in jobs { witness(witnessed.updateValue(job, forKey: job.id), job) }
    } catch { fatalError("\(error)") }
  }
}
