internal import Executors
internal import Foundation
internal import GRDB
internal import Jobs
internal import Metrics
internal import Synchronization

/// Writes on a thread of its own, all waiting operations in one transaction: however many callers wait, they share one
/// fsync, and the more of them there are, the more share it. Where none of them promises anything, there is none: the
/// next one that is synced takes theirs along.
///
/// Each operation has a savepoint: one that fails is undone alone. When the commit fails, all of them have failed.
final class GroupCommit: Sendable {
  private let line = WaitingOperations()
  private let thread: WritingThread

  /// - Parameters:
  ///   - limit: operations in one transaction, at the most.
  ///   - isDurable: whether anything is synced at all.
  ///   - reserve: space for when the disk is full; nil: there is none.
  init(
    to database: DatabasePool, limit: Int, isDurable: Bool, counters: StoreCounters,
    reserve: DiskReserve?
  ) {
    thread = WritingThread(
      database: database, line: line, limit: limit, isDurable: isDurable, counters: counters,
      reserve: reserve)
    startThread(named: "store-write") { [thread] in thread.run() }
  }

  deinit { line.close() }

  /// What the last commit left.
  var counts: StoreCounts { thread.published.withLock { $0.counts } }
  /// The cache's entries and their images' bytes, as the last commit left them.
  var cacheCounts: (entries: Int, bytes: Int) { thread.published.withLock { $0.cache } }
  /// Transactions committed, those among them that were synced, and operations in them, since the start.
  var committed: (transactions: Int, synced: Int, operations: Int) {
    thread.published.withLock { ($0.transactions, $0.synced, $0.operations) }
  }

  /// Whether batches were cancelled or purged that still have jobs to be ended.
  var hasStoppedBatches: Bool { thread.published.withLock { $0.hasStoppedBatches } }

  /// Ends of batches that somebody is told of, since the start.
  var toldBatches: Int { thread.published.withLock { $0.toldBatches } }

  /// Where queued jobs that ask the same are to be looked for.
  var queuedRequests: QueuedRequests { thread.published.withLock { $0.requests } }

  /// Operations that no transaction has taken yet.
  var waiting: Int { line.count }

  /// Runs `body` in the next transaction; returns when that is durable.
  ///
  /// - Parameters:
  ///   - isSynced: false for what only a power cut may undo: it outlives the process all the same.
  ///   - isAdding: whether it is refused while the disk has nothing left but the reserve.
  ///   - body: may run again where the disk was full.
  func perform<Value: Sendable>(
    isSynced: Bool = true, isAdding: Bool = false,
    _ body: @escaping @Sendable (inout WriteTransaction) throws -> Value
  ) async throws(StoreError) -> Value {
    let result = await withCheckedContinuation { continuation in
      let operation = Operation(isSynced: isSynced, isAdding: isAdding, body, continuation)
      if !line.add(operation) { operation.finish(failedBy: .unavailable(detail: "it is closed")) }
    }
    return try result.get()
  }

  /// Takes no more operations and waits for those taken.
  func close() async {
    line.close()
    await withCheckedContinuation { thread.whenEnded($0) }
  }
}

/// Operations that wait for the writing thread.
private final class WaitingOperations: @unchecked Sendable {  // all state behind `condition`
  private let condition = NSCondition()
  private var waiting: [any WriteOperation] = []
  private var isClosed = false

  var count: Int {
    condition.lock()
    defer { condition.unlock() }
    return waiting.count
  }

  /// - Returns: false when it is closed.
  func add(_ operation: any WriteOperation) -> Bool {
    condition.lock()
    defer { condition.unlock() }
    guard !isClosed else { return false }
    waiting.append(operation)
    if waiting.count == 1 { condition.signal() }
    return true
  }

  /// Waits for operations and takes up to `limit`, oldest first; none once closed and empty.
  func take(_ limit: Int) -> [any WriteOperation] {
    condition.lock()
    defer { condition.unlock() }
    while waiting.isEmpty && !isClosed { condition.wait() }
    guard waiting.count > limit else {
      defer { waiting.removeAll(keepingCapacity: true) }
      return waiting
    }
    defer { waiting.removeFirst(limit) }
    return Array(waiting.prefix(limit))
  }

  func close() {
    condition.lock()
    isClosed = true
    condition.unlock()
    condition.broadcast()
  }
}

private protocol WriteOperation: Sendable {
  /// Whether its caller is promised that a power cut undoes nothing of it.
  var isSynced: Bool { get }
  /// Whether it is refused while the disk has nothing left but the reserve.
  var isAdding: Bool { get }
  /// Whether it failed because the disk is full.
  var foundDiskFull: Bool { get }
  /// Makes its changes; remembers what it returned or threw.
  /// - Returns: whether it succeeded.
  func run(_ transaction: inout WriteTransaction) -> Bool
  /// Hands its result to its caller: what ``run(_:)`` remembered unless `error` is given.
  func finish(failedBy error: StoreError?)
}

private final class Operation<Value: Sendable>: WriteOperation, @unchecked Sendable {
  let isSynced: Bool
  let isAdding: Bool
  private(set) var foundDiskFull = false
  // Made by its caller, used by the writing thread alone after that.
  private let body: @Sendable (inout WriteTransaction) throws -> Value
  private let continuation: CheckedContinuation<Result<Value, StoreError>, Never>
  private var result: Result<Value, StoreError>?

  init(
    isSynced: Bool, isAdding: Bool,
    _ body: @escaping @Sendable (inout WriteTransaction) throws -> Value,
    _ continuation: CheckedContinuation<Result<Value, StoreError>, Never>
  ) {
    (self.isSynced, self.isAdding) = (isSynced, isAdding)
    self.body = body
    self.continuation = continuation
  }

  func run(_ transaction: inout WriteTransaction) -> Bool {
    do {
      result = .success(try body(&transaction))
      return true
    } catch {
      result = .failure(StoreError(cause: error))
      foundDiskFull = (error as? DatabaseError)?.isForLackOfRoom ?? false
      return false
    }
  }

  func finish(failedBy error: StoreError?) {
    let unrun = Result<Value, StoreError>.failure(.unavailable(detail: "it did not run"))
    continuation.resume(returning: error.map { .failure($0) } ?? result ?? unrun)
  }
}

/// The writing thread's own: everything but what is behind a lock is touched by it alone.
private final class WritingThread: @unchecked Sendable {
  struct Published {
    var counts: StoreCounts
    var cache: (entries: Int, bytes: Int)
    var hasStoppedBatches = false
    var requests = QueuedRequests()
    var toldBatches = 0
    var transactions = 0
    /// Those among them that were synced.
    var synced = 0
    var operations = 0
  }
  let published: Mutex<Published>
  private let database: DatabasePool
  private let line: WaitingOperations
  private let limit: Int
  private var counters: StoreCounters
  private let held = HeldRows()
  private let reserve: DiskReserve?
  private let isDurable: Bool
  /// As the connection is set now.
  private var syncs = true
  private let log: DatabaseLog
  /// SQLite's syncs that had failed when the log was last known to be as it was written.
  private var failedSyncs = SQLiteLibrary.failedSyncs
  private let end = Mutex<(hasEnded: Bool, waiting: [CheckedContinuation<Void, Never>])>(
    (false, []))
  private let duration = Metrics.Timer(label: "imagefetch_store_commit_seconds")
  private let size = Metrics.Recorder(label: "imagefetch_store_commit_operations")

  init(
    database: DatabasePool, line: WaitingOperations, limit: Int, isDurable: Bool,
    counters: StoreCounters, reserve: DiskReserve?
  ) {
    self.reserve = reserve
    self.isDurable = isDurable
    self.database = database
    log = DatabaseLog(of: database.path)
    self.line = line
    self.limit = limit
    self.counters = counters
    published = Mutex(
      Published(
        counts: counters.counts, cache: counters.cacheCounts,
        hasStoppedBatches: !counters.lanes.stopped.isEmpty, requests: counters.requests))
  }

  func run() {
    while true {
      let operations = line.take(limit)
      if operations.isEmpty { break }
      perform(operations)
    }
    let waiting = end.withLock {
      $0.hasEnded = true
      return $0.waiting
    }
    for continuation in waiting { continuation.resume() }
  }

  func whenEnded(_ continuation: CheckedContinuation<Void, Never>) {
    let hasEnded = end.withLock {
      if !$0.hasEnded { $0.waiting.append(continuation) }
      return $0.hasEnded
    }
    if hasEnded { continuation.resume() }
  }

  /// Commits operations. On a full disk those that add something are refused, and the others get the space of the reserve.
  private func perform(_ given: [any WriteOperation]) {
    var operations = given
    func refuseAdding() {
      for operation in operations where operation.isAdding { operation.finish(failedBy: .full) }
      operations.removeAll(where: \.isAdding)
    }
    if operations.contains(where: \.isAdding), reserve?.isLow ?? false { refuseAdding() }
    var isLogEmptied = false
    while !operations.isEmpty {
      let error = commit(operations)
      guard error == .full, let reserve else {
        return operations.forEach { $0.finish(failedBy: error) }
      }
      if operations.contains(where: \.isAdding) {
        refuseAdding()
      } else if isLogEmptied, !reserve.release() {
        return operations.forEach { $0.finish(failedBy: error) }
      }
      // Once all of the log is in the database, SQLite reuses the log from its beginning, which takes no further space.
      isLogEmptied = true
      try? database.writeWithoutTransaction { _ = try $0.checkpoint(.passive) }
    }
  }

  /// - Returns: why none of them was made, if so.
  private func commit(_ operations: [any WriteOperation]) -> StoreError? {
    let start = ContinuousClock.now
    let isSynced = operations.contains { $0.isSynced }
    do {
      counters = try database.writeWithoutTransaction { db in
        try mendLog()
        try sync(isSynced, db)
        try db.beginTransaction(.immediate)
        do {
          var transaction = WriteTransaction(db: db, counters: counters, held: held)
          for operation in operations { try run(operation, &transaction) }
          try transaction.settleBatches()
          try db.commit()
          return transaction.counters
        } catch {
          if db.isInsideTransaction { try? db.rollback() }
          throw error
        }
      }
    } catch {
      held.forgetAll()
      return StoreError(cause: error)
    }
    published.withLock {
      $0.counts = counters.counts
      $0.cache = counters.cacheCounts
      $0.hasStoppedBatches = !counters.lanes.stopped.isEmpty
      $0.requests = counters.requests
      $0.toldBatches = counters.toldBatches
      $0.transactions += 1
      if isSynced { $0.synced += 1 }
      $0.operations += operations.count
    }
    duration.recordSeconds((ContinuousClock.now - start).inSeconds)
    size.record(operations.count)
    return nil
  }

  /// Promises nothing after a sync that failed before the log is as it was to be.
  private func mendLog() throws {
    let failures = SQLiteLibrary.failedSyncs
    guard isDurable, failures != failedSyncs else { return }
    try log.rewrite()
    failedSyncs = failures
  }

  /// Says whether the next commit is to be on the disk before it returns (https://www.sqlite.org/pragma.html#pragma_synchronous).
  private func sync(_ isSynced: Bool, _ db: Database) throws {
    guard isDurable, isSynced != syncs else { return }
    try db.execute(sql: "PRAGMA synchronous = \(isSynced ? "FULL" : "NORMAL")")
    syncs = isSynced
  }

  private func run(_ operation: any WriteOperation, _ transaction: inout WriteTransaction) throws {
    try transaction.execute("SAVEPOINT operation")
    let before = transaction.counters
    if !operation.run(&transaction) {
      // A full disk may end the whole transaction with all of its changes. With a reserve the transaction is tried again.
      guard transaction.db.isInsideTransaction, reserve == nil || !operation.foundDiskFull else {
        throw StoreError.full
      }
      try transaction.execute("ROLLBACK TO operation")
      transaction.counters = before
      held.forgetAll()
    }
    try transaction.execute("RELEASE operation")
  }
}
