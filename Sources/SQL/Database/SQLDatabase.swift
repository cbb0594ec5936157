package import Jobs

// SQL: the job store, written once for every database that it supports.
//
// Input: calls of the protocols of the Jobs module, from any task. Output: their results, after the commit.
// A database (`SQLDatabase`) provides connections; the modules SQLite and PostgreSQL contain one each.
//
// Statements are written for PostgreSQL; the module SQLite rewrites them. The comment of `SQLJobStore` says in which order to
// read the files.

/// A database that holds the tables of a job store. Everything that depends on the kind of the database is here and in
/// ``SQLConnection``.
package protocol SQLDatabase: Sendable {
  /// Whether all transactions run on one thread and share commits, because the database has a single writer.
  var hasOneWriter: Bool { get }

  /// Whether a connection can break, so that it is unknown whether a transaction was committed.
  var losesAnswers: Bool { get }

  /// Connects, for the thread with this name. Blocks the calling thread.
  /// - Parameters:
  ///   - mayWrite: False if the connection only reads.
  ///   - timeout: The maximum duration of a transaction or a read.
  func connect(
    for thread: String, mayWrite: Bool, timeout: Duration
  ) throws(Fault) -> any SQLConnection

  /// Connects to change the tables, which may take long.
  func connectForSchema() throws(Fault) -> any SQLConnection

  /// SQL that creates what the database needs besides the tables of ``Schema``, such as functions.
  var additions: String { get }

  /// SQL that makes the database number new rows after those that were copied into it; empty if it does so anyway.
  /// - Parameter instance: the number of the source's last instance, which rows contain.
  func numbering(after instance: Int64) -> String

  /// Opens the channel of events between processes. Nil if only one process uses the database.
  func openChannel(_ settings: Session.Settings, _ bus: InstanceEventBus) -> (any EventChannel)?

  /// Whether the disk is almost full, so that only requests that free space are accepted.
  var isLow: Bool { get }

  /// Called after a transaction that adds nothing found the disk full. Frees space that was reserved for that case.
  /// - Returns: Whether the transaction can be tried again.
  func freeReserve() -> Bool

  /// Whether there is space for new records again. The call may free space itself.
  func hasRoom(_ store: SQLJobStore) async -> Bool

  /// Called after the last connection was closed.
  func close()
}

extension SQLDatabase {
  package func numbering(after instance: Int64) -> String { "" }
  package var isLow: Bool { false }
  package func freeReserve() -> Bool { false }
  package func close() {}
}

/// One connection to a database. Only one thread uses it at a time.
///
/// No call blocks much longer than its deadline, if the database supports that.
package protocol SQLConnection: AnyObject {
  typealias Deadline = ContinuousClock.Instant

  /// False after the connection broke.
  var isUsable: Bool { get }

  /// Whether a transaction is open on this connection.
  var isInTransaction: Bool { get }

  /// Begins a transaction.
  /// - Parameter isSynced: False if a crash of the machine may undo it.
  func begin(isSynced: Bool, by deadline: Deadline) throws(Fault)

  /// Begins a transaction whose reads share one snapshot.
  func beginSnapshot(by deadline: Deadline) throws(Fault)

  /// Runs a statement. It is parsed only the first time.
  func execute(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) -> Rows

  /// Runs statements, if possible in one round trip. If one fails, those after it are not run.
  /// - Returns: The rows of each statement.
  func executeAll(_ statements: [SQLStatement], by deadline: Deadline) throws(Fault) -> [Rows]

  /// Queues a statement that is sent with the next one. If it fails, the next one is not run and throws the error.
  func enqueue(_ statement: SQLStatement, by deadline: Deadline) throws(Fault)

  /// Discards queued statements that were not sent.
  func discardQueued()

  /// Runs statements without arguments and results.
  func run(_ script: String, by deadline: Deadline) throws(Fault)

  /// Takes a lock until the end of the transaction, so that transactions of other connections wait. Does nothing if the
  /// database has a single writer.
  func lock(_ lock: TransactionLock, by deadline: Deadline) throws(Fault)

  /// Whether the table exists.
  func hasTable(_ name: String, by deadline: Deadline) throws(Fault) -> Bool
}

/// A lock that is not on a row.
package enum TransactionLock {
  /// The tables themselves.
  case schema
  /// The choice of the next webhook messages.
  case messages
  /// The results of a batch's jobs: waits for the transactions that have passed ``checkResults(_:)``.
  case results(Int64)
  /// Fails with ``Fault/conflict(_:)`` if one of these batches was cancelled or purged, and lets none be cancelled before
  /// the commit.
  case checkResults([Int64])
}

/// Carries events between the processes that share a database.
package protocol EventChannel: Sendable {
  /// Adds an instance of this process.
  func addInstance(_ instance: Instance)

  /// Queues an event for the other processes and returns at once.
  func publish(_ event: InstanceEvent)

  /// Sends one event in the caller's transaction, and returns the other instances. One whose lease has expired counts
  /// too, until a recovery ends it, because it may still renew its lease. After the commit, each connection that
  /// listens receives the event before the answer to a later statement.
  func announce(
    _ event: InstanceEvent, from instance: Instance, in transaction: Transaction
  ) throws -> Set<Instance>

  /// Sends the last events and ends.
  func close() async
}

/// A statement and its arguments, `$1`, `$2` and so on.
package struct SQLStatement {
  package let sql: String
  package let values: [SQLValue]

  package init(_ sql: String, _ values: [SQLValue] = []) { (self.sql, self.values) = (sql, values) }
}

/// A statement's argument.
package enum SQLValue: Sendable {
  case int(Int64?)
  case bool(Bool)
  case bytes([UInt8]?)
  case id(JobID?)
  case ints([Int64?])
  case bools([Bool])
  case byteStrings([[UInt8]?])
  case ids([JobID])

  /// The value in PostgreSQL's binary format (big-endian numbers); nil for NULL.
  package var encoded: [UInt8]? {
    switch self {
    case .int(let value): value?.bigEndianBytes
    case .bool(let value): [value ? 1 : 0]
    case .bytes(let value): value
    case .id(let value): value?.bytes
    case .ints(let values): Self.array(of: 20, values) { $1.append(bigEndian: $0) }
    case .bools(let values): Self.array(of: 16, values) { $1.append($0 ? 1 : 0) }
    case .byteStrings(let values): Self.array(of: 17, values) { $1 += $0 }
    case .ids(let values): Self.array(of: 2950, values) { $1 += $0.bytes }
    }
  }

  /// Whether the value is an array.
  package var isArray: Bool {
    switch self {
    case .int, .bool, .bytes, .id: false
    case .ints, .bools, .byteStrings, .ids: true
    }
  }

  /// The element of an array with one element; nil for other arrays. A value that is no array is its own element.
  package var onlyElement: SQLValue? {
    switch self {
    case .int, .bool, .bytes, .id: self
    case .ints(let values): values.count == 1 ? .int(values[0]) : nil
    case .bools(let values): values.count == 1 ? .bool(values[0]) : nil
    case .byteStrings(let values): values.count == 1 ? .bytes(values[0]) : nil
    case .ids(let values): values.count == 1 ? .id(values[0]) : nil
    }
  }

  /// Encodes a one-dimensional array: the number of dimensions, a NULL flag, the element type, the
  /// length and the lower bound 1, then each element preceded by its length.
  /// - Parameter append: appends an element to the bytes.
  private static func array<Element>(
    of type: Int32, _ elements: [Element?], _ append: (Element, inout [UInt8]) -> Void
  ) -> [UInt8] {
    guard !elements.isEmpty else {
      return (0 as Int32).bigEndianBytes + [0, 0, 0, 0] + type.bigEndianBytes
    }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(20 + elements.count * 24)
    for number in [1, 1, type, Int32(elements.count), 1] { bytes.append(bigEndian: number) }
    for element in elements {
      let start = bytes.count
      bytes.append(bigEndian: -1 as Int32)
      guard let element else { continue }
      append(element, &bytes)
      let length = Int32(bytes.count - start - 4)
      withUnsafeBytes(of: length.bigEndian) { length in
        for (index, byte) in length.enumerated() { bytes[start + index] = byte }
      }
    }
    return bytes
  }
}

extension [UInt8] {
  fileprivate mutating func append(bigEndian number: some FixedWidthInteger) {
    Swift.withUnsafeBytes(of: number.bigEndian) { append(contentsOf: $0) }
  }
}

extension FixedWidthInteger {
  /// The number in network byte order.
  var bigEndianBytes: [UInt8] { withUnsafeBytes(of: bigEndian) { Array($0) } }

  /// Decodes a number, which may have fewer bytes than this type.
  package init(bigEndianBytes bytes: UnsafeRawBufferPointer) {
    var value = bytes.first.map { $0 & 0x80 != 0 ? Self(truncatingIfNeeded: -1) : 0 } ?? 0
    for byte in bytes { value = value << 8 | Self(byte) }
    self = value
  }
}

extension JobID {
  /// 16 bytes with the same order as the ids.
  var bytes: [UInt8] { high.bigEndianBytes + low.bigEndianBytes }

  init?(bytes: UnsafeRawBufferPointer) {
    guard bytes.count == 16 else { return nil }
    let high = bytes.loadUnaligned(as: UInt64.self)
    let low = bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
    self.init(high: UInt64(bigEndian: high), low: UInt64(bigEndian: low))
  }
}

/// The cells of a statement's result.
package protocol ResultCells {
  /// The number of rows.
  var count: Int { get }
  /// The number of rows that an INSERT, UPDATE or DELETE changed.
  var changes: Int { get }
  /// A number; nil for NULL.
  func int(_ row: Int, _ column: Int) -> Int64?
  /// Calls the body with a cell's bytes; nil for NULL.
  func withBytes<Value>(
    _ row: Int, _ column: Int, _ body: (UnsafeRawBufferPointer) -> Value?
  ) -> Value?
}

/// The result of a statement.
package final class Rows {
  private let cells: any ResultCells
  package let count: Int

  package init(_ cells: any ResultCells) {
    self.cells = cells
    count = cells.count
  }

  package var isEmpty: Bool { count == 0 }

  /// The number of rows that an INSERT, UPDATE or DELETE changed.
  var changes: Int { cells.changes }

  /// The row numbers, for iteration.
  package var all: Range<Int> { 0..<count }

  /// Reads a number; nil for NULL.
  package func int(_ row: Int, _ column: Int) -> Int64? {
    row < count ? cells.int(row, column) : nil
  }

  private func value<Value>(
    _ row: Int, _ column: Int, _ read: (UnsafeRawBufferPointer) -> Value?
  ) -> Value? {
    row < count ? cells.withBytes(row, column, read) : nil
  }

  package func bytes(_ row: Int, _ column: Int) -> [UInt8]? { value(row, column) { Array($0) } }

  package func bool(_ row: Int, _ column: Int) -> Bool { int(row, column).map { $0 != 0 } ?? false }

  package func id(_ row: Int, _ column: Int) -> JobID? { value(row, column) { JobID(bytes: $0) } }

  func digest(_ row: Int, _ column: Int) -> ImageDigest? {
    value(row, column) { ImageDigest(bytes: $0) }
  }

  /// The images of all rows: column 0 is the digest, column 1 the generation.
  var names: [ImageName] {
    all.compactMap { row in
      digest(row, 0).map { ImageName($0, generation: int(row, 1) ?? 0) }
    }
  }
}

/// Client texts that are searched by an index. An index key has a maximum length.
enum IndexedText {
  /// Returns the text's bytes, or a hash if they are more than 512.
  static func bytes(of text: String) -> [UInt8] {
    let bytes = Array(text.utf8)
    return bytes.count <= 512 ? bytes : [0] + Fingerprint(of: [text]).bytes
  }
}

/// Why a statement failed, grouped by what the caller can do.
package enum Fault: Error {
  // The texts name the database, for the log.

  /// The connection broke or could not be made. A new connection may succeed.
  case lost(String)
  /// The server did not answer in time. It is unknown whether the statement took effect.
  case late
  /// Another transaction interfered (a deadlock, or an equal key at the same time). The transaction
  /// may succeed when repeated.
  case conflict(String)
  /// The disk is full.
  case full
  /// The database rejected the statement. Repeating it has the same result.
  case refused(String)
}

extension StoreError {
  /// Converts an error of the layers below to the error that callers see.
  init(cause: any Error) {
    switch cause {
    case let error as StoreError: self = error
    case Fault.full: self = .full
    case Fault.late: self = .unavailable(detail: "the database did not answer in time")
    case Fault.lost(let text), Fault.conflict(let text), Fault.refused(let text):
      self = .unavailable(detail: text)
    default: self = .unavailable(detail: "\(cause)")
    }
  }
}
