internal import Executors
internal import Foundation
internal import GRDB
internal import Jobs
internal import Metrics
internal import Synchronization

/// Executes writes on its own thread, all waiting operations in one transaction, so that many
/// callers share one fsync. If none of the operations needs durability, the transaction is not
/// synced; the next synced one makes it durable too.
///
/// Each operation has a savepoint: if it fails, only its own changes are undone. If the commit
/// fails, all of them fail.
final class GroupCommit: Sendable {
  private let line = WaitingOperations()
  private let thread: WritingThread

  /// - Parameters:
  ///   - limit: the maximum number of operations in one transaction.
  ///   - isDurable: whether anything is synced at all.
  ///   - reserve: disk space for operations on a full disk; `nil` if there is none.
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

  /// The counts after the last commit.
  var counts: StoreCounts { thread.published.withLock { $0.counts } }
  /// The cache's entries and their images' bytes after the last commit.
  var cacheCounts: (entries: Int, bytes: Int) { thread.published.withLock { $0.cache } }
  /// The number of committed transactions, of synced ones among them, and of their operations since
  /// the start.
  var committed: (transactions: Int, synced: Int, operations: Int) {
    thread.published.withLock { ($0.transactions, $0.synced, $0.operations) }
  }

  /// Whether cancelled or purged batches have jobs left to process.
  var hasStoppedBatches: Bool { thread.published.withLock { $0.hasStoppedBatches } }

  /// The number of finished batches with a webhook since the start.
  var finishedBatchesWithWebhook: Int { thread.published.withLock { $0.toldBatches } }

  /// The requests of queued jobs, for finding equal ones.
  var queuedRequests: QueuedRequests { thread.published.withLock { $0.requests } }

  /// The number of operations that no transaction has started.
  var waiting: Int { line.count }

  /// Runs `body` in the next transaction and returns after its commit.
  ///
  /// - Parameters:
  ///   - isSynced: `false` if a power failure may undo the change. It survives a crash of the
  ///     process in any case.
  ///   - isAdding: whether to reject the operation if only the reserve is left on the disk.
  ///   - body: may run again after the disk was full.
  func perform<Value: Sendable>(
    isSynced: Bool = true, isAdding: Bool = false,
    _ body: @escaping @Sendable (inout WriteTransaction) throws -> Value
  ) async throws(StoreError) -> Value {
    let result = await withCheckedContinuation { continuation in
      let operation = Operation(isSynced: isSynced, isAdding: isAdding, body, continuation)
      if !line.add(operation) {
        operation.finish(failedBy: .unavailable(detail: "the store is closed"))
      }
    }
    return try result.get()
  }

  /// Rejects further operations and waits for the accepted ones.
  func close() async {
    line.close()
    await withCheckedContinuation { thread.whenEnded($0) }
  }
}

private final class WaitingOperations: @unchecked Sendable {  // protected by `condition`
  private let condition = NSCondition()
  private var waiting: [any WriteOperation] = []
  private var isClosed = false

  var count: Int {
    condition.lock()
    defer { condition.unlock() }
    return waiting.count
  }

  /// - Returns: `false` if the line is closed.
  func add(_ operation: any WriteOperation) -> Bool {
    condition.lock()
    defer { condition.unlock() }
    guard !isClosed else { return false }
    waiting.append(operation)
    if waiting.count == 1 { condition.signal() }
    return true
  }

  /// Waits for operations and returns up to `limit` of them, oldest first. Returns an empty array
  /// once the line is closed and empty.
  func dequeue(_ limit: Int) -> [any WriteOperation] {
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
  /// Whether a power failure must not undo the operation.
  var isSynced: Bool { get }
  /// Whether to reject the operation if only the reserve is left on the disk.
  var isAdding: Bool { get }
  /// Whether the operation failed because the disk is full.
  var foundDiskFull: Bool { get }
  /// Executes the operation and stores its result or error.
  /// - Returns: whether it succeeded.
  func run(_ transaction: inout WriteTransaction) -> Bool
  /// Returns the stored result to the caller, or `error` if given.
  func finish(failedBy error: StoreError?)
}

private final class Operation<Value: Sendable>: WriteOperation, @unchecked Sendable {
  let isSynced: Bool
  let isAdding: Bool
  private(set) var foundDiskFull = false
  // Set by the caller, then used only by the writing thread.
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
      foundDiskFull = (error as? DatabaseError)?.isDiskFull ?? false
      return false
    }
  }

  func finish(failedBy error: StoreError?) {
    let unrun = Result<Value, StoreError>.failure(.unavailable(detail: "the operation did not run"))
    continuation.resume(returning: error.map { .failure($0) } ?? result ?? unrun)
  }
}

/// The state of the writing thread. Only this thread uses the properties that no lock protects.
private final class WritingThread: @unchecked Sendable {
  struct Published {
    var counts: StoreCounts
    var cache: (entries: Int, bytes: Int)
    var hasStoppedBatches = false
    var requests = QueuedRequests()
    var toldBatches = 0
    var transactions = 0
    /// The number of synced transactions.
    var synced = 0
    var operations = 0
  }
  let published: Mutex<Published>
  private let database: DatabasePool
  private let line: WaitingOperations
  private let limit: Int
  private var counters: StoreCounters
  private let held = LoadingRowCache()
  private let reserve: DiskReserve?
  private let isDurable: Bool
  /// The current setting of the connection.
  private var syncs = true
  private let log: DatabaseLog
  /// The number of failed syncs when the log was last known to be intact.
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
        hasStoppedBatches: counters.queues.ready.hasStoppedBatches, requests: counters.requests))
  }

  func run() {
    while true {
      let operations = line.dequeue(limit)
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

  /// Commits operations. On a full disk, operations that add something are rejected, and the others
  /// use the reserve.
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
      // When the whole log is in the database, SQLite reuses it from the beginning, which needs no
      // further space.
      isLogEmptied = true
      try? database.writeWithoutTransaction { _ = try $0.checkpoint(.passive) }
    }
  }

  /// - Returns: the error if the transaction was not committed.
  private func commit(_ operations: [any WriteOperation]) -> StoreError? {
    let start = ContinuousClock.now
    let isSynced = operations.contains { $0.isSynced }
    do {
      counters = try database.writeWithoutTransaction { db in
        try repairLog()
        try setSynchronous(isSynced, db)
        try db.beginTransaction(.immediate)
        do {
          var transaction = WriteTransaction(db: db, counters: counters, held: held)
          for operation in operations { try run(operation, &transaction) }
          try transaction.writeBatchCounters()
          try db.commit()
          return transaction.counters
        } catch {
          if db.isInsideTransaction { try? db.rollback() }
          throw error
        }
      }
    } catch {
      held.removeAll()
      return StoreError(cause: error)
    }
    published.withLock {
      $0.counts = counters.counts
      $0.cache = counters.cacheCounts
      $0.hasStoppedBatches = counters.queues.ready.hasStoppedBatches
      $0.requests = counters.requests
      $0.toldBatches = counters.finishedBatchesWithWebhook
      $0.transactions += 1
      if isSynced { $0.synced += 1 }
      $0.operations += operations.count
    }
    duration.recordSeconds((ContinuousClock.now - start).inSeconds)
    size.record(operations.count)
    return nil
  }

  /// Rewrites the log after a failed sync, so that no commit is promised on top of a damaged log.
  private func repairLog() throws {
    let failures = SQLiteLibrary.failedSyncs
    guard isDurable, failures != failedSyncs else { return }
    try log.rewrite()
    failedSyncs = failures
  }

  /// Sets whether the next commit is synced before it returns
  /// (https://www.sqlite.org/pragma.html#pragma_synchronous).
  private func setSynchronous(_ isSynced: Bool, _ db: Database) throws {
    guard isDurable, isSynced != syncs else { return }
    try db.execute(sql: "PRAGMA synchronous = \(isSynced ? "FULL" : "NORMAL")")
    syncs = isSynced
  }

  private func run(_ operation: any WriteOperation, _ transaction: inout WriteTransaction) throws {
    try transaction.execute("SAVEPOINT operation")
    let before = transaction.counters
    if !operation.run(&transaction) {
      // SQLite may roll back the whole transaction on a full disk. With a reserve, the transaction
      // is repeated.
      guard transaction.db.isInsideTransaction, reserve == nil || !operation.foundDiskFull else {
        throw StoreError.full
      }
      try transaction.execute("ROLLBACK TO operation")
      transaction.counters = before
      held.removeAll()
    }
    try transaction.execute("RELEASE operation")
  }
}
