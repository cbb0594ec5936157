internal import CPQ
internal import Glibc
internal import SQL

/// One connection to the server. Only one thread uses it at a time.
///
/// No call blocks beyond its deadline. If the server does not answer by then, the connection is
/// marked unusable and must be closed: libpq has no other way to end the wait.
final class PostgresConnection: SQLConnection {
  /// The server's address and credentials, and the connect timeout.
  struct Address: Sendable {
    /// `postgresql://user@host/database?…`
    var url: String
    /// Called for each new connection. If it returns `nil`, libpq uses its own sources (PGPASSWORD,
    /// ~/.pgpass).
    var password: @Sendable () -> String? = { nil }
    /// Seconds to wait for each host of the URL, unless the URL sets `connect_timeout`. libpq waits
    /// for at least two seconds.
    var connectTimeout = 3
    /// The name shown in pg_stat_activity, unless the URL sets one.
    var application = "imagefetch"
  }

  private let handle: OpaquePointer
  private var prepared: [String: String] = [:]

  private struct Pending {
    /// The name of the prepared statement.
    var name: String
    var values: [SQLValue]
  }

  /// Statements that are sent together with the next one.
  private var pending: [Pending] = []
  /// False after the connection broke.
  private(set) var isUsable = true
  /// The maximum size of one answer in bytes. No query here returns as much, so a larger answer is
  /// treated as an attack.
  private static let largestAnswer = 1 << 29

  /// Returns whether libpq accepts a URL. libpq's error message is not used: it contains the URL
  /// and so possibly a password.
  static func understands(_ url: String) -> Bool {
    guard let options = PQconninfoParse(url, nil) else { return false }
    PQconninfoFree(options)
    return true
  }

  /// Connects to the server. Blocks the calling thread.
  init(_ address: Address) throws(Fault) {
    guard Self.understands(address.url) else {
      throw .refused("PostgreSQL: that is no PostgreSQL URL")
    }
    let options: [(String, String)] =
      [
        ("connect_timeout", "\(address.connectTimeout)"), ("dbname", address.url),
        ("fallback_application_name", address.application), ("client_encoding", "UTF8"),
      ] + (address.password().map { [("password", $0)] } ?? [])
    let names = options.map { strdup($0.0) } + [nil]
    let values = options.map { strdup($0.1) } + [nil]
    defer { (names + values).forEach { free($0) } }
    // libpq expands a `dbname` that is a URL. Its options override those before it, and those after
    // it override the URL.
    let handle = names.map { UnsafePointer($0) }.withUnsafeBufferPointer { names in
      values.map { UnsafePointer($0) }.withUnsafeBufferPointer { values in
        PQconnectdbParams(names.baseAddress, values.baseAddress, 1)
      }
    }
    guard let handle else { throw .lost(Self.unreachable("there is no memory for a connection")) }
    guard PQstatus(handle) == CONNECTION_OK, PQsetnonblocking(handle, 1) == 0 else {
      defer { PQfinish(handle) }
      throw .lost(Self.unreachable(Self.message(handle)))
    }
    PQsetNoticeReceiver(handle, { _, _ in }, nil)
    self.handle = handle
  }

  deinit { PQfinish(handle) }

  /// The version of libpq, in the same form as ``serverVersion``.
  static var libraryVersion: Int { Int(PQlibVersion()) }

  /// The version of the server, for example 150007 for 15.7.
  var serverVersion: Int { Int(PQserverVersion(handle)) }

  func begin(isSynced: Bool, by deadline: Deadline) throws(Fault) {
    try enqueue(SQLStatement("BEGIN"), by: deadline)
    if !isSynced { try enqueue(SQLStatement("SET LOCAL synchronous_commit = off"), by: deadline) }
  }

  func beginSnapshot(by deadline: Deadline) throws(Fault) {
    try enqueue(SQLStatement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"), by: deadline)
  }

  /// Runs statements without arguments in one round trip.
  func run(_ script: String, by deadline: Deadline) throws(Fault) {
    _ = try exchange(by: deadline)
    guard PQsendQuery(handle, script) == 1 else { throw markBroken() }
    _ = try receiveResult(by: deadline)
  }

  func hasTable(_ name: String, by deadline: Deadline) throws(Fault) -> Bool {
    try execute(
      SQLStatement("SELECT 1 WHERE to_regclass('\(name)') IS NOT NULL"), by: deadline
    ).count > 0
  }

  /// Runs a statement. The server parses it only the first time.
  func execute(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) -> Rows {
    guard pending.isEmpty else { return try executeAll([statement], by: deadline)[0] }
    let name = try prepare(statement.sql, statement.values.map(\.type), by: deadline)
    try send(Pending(name: name, values: statement.values))
    return try receiveResult(by: deadline)
  }

  /// Runs statements in one round trip, together with the queued ones. If one fails, those after it are not run.
  /// - Returns: the rows of each statement.
  func executeAll(
    _ statements: [SQLStatement], by deadline: Deadline
  ) throws(Fault) -> [Rows] {
    guard !statements.isEmpty else { return [] }
    for statement in statements { try enqueue(statement, by: deadline) }
    return try exchange(by: deadline).suffix(statements.count)
  }

  /// Queues a statement that is sent with the next one in the same round trip. If it fails, the
  /// next one is not run and throws the error.
  func enqueue(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) {
    let name = try prepare(statement.sql, statement.values.map(\.type), by: deadline)
    pending.append(Pending(name: name, values: statement.values))
  }

  /// Discards queued statements that were not sent.
  func discardQueued() { pending = [] }

  /// Whether the server has an open transaction on this connection.
  var isInTransaction: Bool { PQtransactionStatus(handle) != PQTRANS_IDLE }

  /// Sends the queued statements as a pipeline.
  /// - Returns: the rows of each statement.
  private func exchange(by deadline: Deadline) throws(Fault) -> [Rows] {
    let statements = pending
    guard !statements.isEmpty else { return [] }
    pending = []
    guard PQenterPipelineMode(handle) == 1 else { throw markBroken() }
    for statement in statements { try send(statement) }
    guard PQpipelineSync(handle) == 1 else { throw markBroken() }
    let rows = try receivePipelineResults(statements.count, by: deadline)
    guard PQexitPipelineMode(handle) == 1 else { throw markBroken() }
    return try rows.get()
  }

  private func send(_ statement: Pending) throws(Fault) {
    let encoded = statement.values.map(\.encoded)
    let lengths = encoded.map { Int32($0?.count ?? 0) }
    let formats = [Int32](repeating: 1, count: encoded.count)
    // One buffer holds all arguments, because the pointers to them must stay valid during the call.
    var all: [UInt8] = []
    all.reserveCapacity(encoded.reduce(0) { $0 + ($1?.count ?? 0) + 1 })
    for value in encoded {
      if let value { all += value }
      all.append(0)
    }
    let isSent = all.withUnsafeBytes { all in
      let characters = all.bindMemory(to: CChar.self)
      var start = 0
      var pointers: [UnsafePointer<CChar>?] = []
      for value in encoded {
        pointers.append(value == nil ? nil : characters.baseAddress.map { $0 + start })
        start += (value?.count ?? 0) + 1
      }
      return PQsendQueryPrepared(
        handle, statement.name, Int32(encoded.count), pointers, lengths, formats, 1) == 1
    }
    guard isSent else { throw markBroken() }
  }

  private func prepare(
    _ sql: String, _ types: [UInt32], by deadline: Deadline
  ) throws(Fault) -> String {
    if let name = prepared[sql] { return name }
    let name = "s\(prepared.count)"
    guard PQsendPrepare(handle, name, sql, Int32(types.count), types) == 1 else {
      throw markBroken()
    }
    _ = try receiveResult(by: deadline)
    prepared[sql] = name
    return name
  }

  /// Sends the remaining output and waits for the complete answer.
  private func receiveResult(by deadline: Deadline) throws(Fault) -> Rows {
    try flush(by: deadline)
    var last: Rows?
    var fault: Fault?
    var received = 0
    while true {
      while PQisBusy(handle) == 1 { try receive(&received, by: deadline) }
      guard let result = PQgetResult(handle) else { break }
      switch PQresultStatus(result) {
      case PGRES_TUPLES_OK, PGRES_COMMAND_OK, PGRES_EMPTY_QUERY: last = Rows(PostgresCells(result))
      default:
        fault = fault ?? self.fault(result)
        PQclear(result)
      }
    }
    if PQstatus(handle) != CONNECTION_OK { throw markBroken() }
    if let fault { throw fault }
    guard let last else { throw markBroken() }
    return last
  }

  /// Waits for the complete answers to a pipeline of `count` statements.
  private func receivePipelineResults(
    _ count: Int, by deadline: Deadline
  ) throws(Fault) -> Result<[Rows], Fault> {
    try flush(by: deadline)
    var all: [Rows] = []
    var fault: Fault?
    var (received, ends) = (0, 0)
    while true {
      while PQisBusy(handle) == 1 { try receive(&received, by: deadline) }
      guard let result = PQgetResult(handle) else {
        // libpq returns NULL after the results of each statement.
        ends += 1
        guard ends <= count, PQstatus(handle) == CONNECTION_OK else { throw markBroken() }
        continue
      }
      switch PQresultStatus(result) {
      case PGRES_TUPLES_OK, PGRES_COMMAND_OK, PGRES_EMPTY_QUERY:
        all.append(Rows(PostgresCells(result)))
      case PGRES_PIPELINE_ABORTED: PQclear(result)
      case PGRES_PIPELINE_SYNC:
        PQclear(result)
        guard PQstatus(handle) == CONNECTION_OK else { throw markBroken() }
        if let fault { return .failure(fault) }
        guard all.count == count else { throw markBroken() }
        return .success(all)
      default:
        fault = fault ?? self.fault(result)
        PQclear(result)
      }
    }
  }

  private func flush(by deadline: Deadline) throws(Fault) {
    while true {
      switch PQflush(handle) {
      case 0: return
      case 1:
        // Read while writing: the server may have to send before it can receive more.
        if try wait(for: POLLIN | POLLOUT, by: deadline) & POLLIN != 0 {
          guard PQconsumeInput(handle) == 1 else { throw markBroken() }
        }
      default: throw markBroken()
      }
    }
  }

  private func receive(_ received: inout Int, by deadline: Deadline) throws(Fault) {
    try wait(for: POLLIN, by: deadline)
    let before = receivedBytes
    guard PQconsumeInput(handle) == 1 else { throw markBroken() }
    // libpq reads a few kilobytes at a time, and more may have arrived during the call.
    received += max(before - receivedBytes, min(before, 8_192))
    guard received <= Self.largestAnswer else {
      isUsable = false
      throw .refused("PostgreSQL: an answer of more than \(Self.largestAnswer) bytes")
    }
  }

  /// The number of bytes received by the socket and not yet read.
  private var receivedBytes: Int {
    var count: Int32 = 0
    _ = ioctl(PQsocket(handle), UInt(FIONREAD), &count)
    return Int(count)
  }

  @discardableResult
  private func wait(for events: Int32, by deadline: Deadline) throws(Fault) -> Int32 {
    var descriptor = pollfd(fd: PQsocket(handle), events: Int16(events), revents: 0)
    while true {
      let left = (deadline - .now).components
      let milliseconds = left.seconds * 1_000 + left.attoseconds / 1_000_000_000_000_000
      guard milliseconds > 0 else {
        isUsable = false
        throw .late
      }
      let count = poll(&descriptor, 1, Int32(min(milliseconds, 60_000)))
      if count > 0 { return Int32(descriptor.revents) }
      if count < 0, errno != EINTR { throw markBroken() }
    }
  }
}

/// Notifications.
extension PostgresConnection {
  /// The descriptor of the connection, for `poll`.
  var socket: Int32 { PQsocket(handle) }

  /// Reads the notifications that have arrived.
  /// - Returns: their payloads.
  func notifications() throws(Fault) -> [String] {
    guard PQconsumeInput(handle) == 1 else { throw markBroken() }
    var payloads: [String] = []
    while let notification = PQnotifies(handle) {
      if let payload = notification.pointee.extra { payloads.append(String(cString: payload)) }
      PQfreemem(notification)
    }
    return payloads
  }
}

/// Errors.
extension PostgresConnection {
  private func markBroken() -> Fault {
    isUsable = false
    return .lost(Self.unreachable(Self.message(handle)))
  }

  private func fault(_ result: OpaquePointer) -> Fault {
    // PG_DIAG_SQLSTATE and PG_DIAG_MESSAGE_PRIMARY are character constants in C. The detail field
    // is not read, because it contains values.
    let code = PQresultErrorField(result, Int32(UInt8(ascii: "C"))).map { String(cString: $0) }
    let text = PQresultErrorField(result, Int32(UInt8(ascii: "M"))).map { String(cString: $0) }
    guard let code else { return markBroken() }
    let fault = Fault(code: code, message: text ?? "no message")
    switch fault {
    case .lost, .late: isUsable = false
    default: break
    }
    return fault
  }

  private static func unreachable(_ reason: String) -> String {
    "PostgreSQL can't be reached: \(reason)"
  }

  /// libpq's error message in one line; libpq writes one line for each address that it tried.
  private static func message(_ handle: OpaquePointer) -> String {
    let text = PQerrorMessage(handle).map { String(cString: $0) } ?? ""
    let lines = text.split(whereSeparator: \.isNewline)
    return lines.map { $0.drop(while: \.isWhitespace) }.joined(separator: "; ")
  }
}

/// The cells of a result. The bytes belong to libpq.
private final class PostgresCells: ResultCells {
  private let result: OpaquePointer
  let count: Int

  /// Takes ownership of the result.
  init(_ result: OpaquePointer) {
    self.result = result
    count = Int(PQntuples(result))
  }

  deinit { PQclear(result) }

  var changes: Int { Int(String(cString: PQcmdTuples(result))) ?? 0 }

  func int(_ row: Int, _ column: Int) -> Int64? {
    withBytes(row, column) { $0.count <= 8 ? Int64(bigEndianBytes: $0) : nil }
  }

  func withBytes<Value>(
    _ row: Int, _ column: Int, _ body: (UnsafeRawBufferPointer) -> Value?
  ) -> Value? {
    let (row, column) = (Int32(row), Int32(column))
    guard PQgetisnull(result, row, column) == 0, let bytes = PQgetvalue(result, row, column) else {
      return nil
    }
    return body(UnsafeRawBufferPointer(start: bytes, count: Int(PQgetlength(result, row, column))))
  }
}

extension SQLValue {
  /// The OID of the value's type, which is the same in every server (pg_type.dat).
  fileprivate var type: UInt32 {
    switch self {
    case .bool: 16
    case .bytes: 17
    case .int: 20
    case .bools: 1000
    case .byteStrings: 1001
    case .ints: 1016
    case .id: 2950
    case .ids: 2951
    }
  }
}

extension Fault {
  /// Maps the server's SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html).
  fileprivate init(code: String, message: String) {
    let text = "\(message) (\(code))"
    switch code {
    case "40001", "40P01", "23505", "55P03": self = .conflict("PostgreSQL: \(text)")
    case "53100": self = .full
    // The server is stopping, starting, out of connections, or has become a standby.
    case "57P01", "57P02", "57P03", "53300", "25006":
      self = .lost("PostgreSQL can't be reached: \(text)")
    case "57014", "25P03": self = .late
    default:
      self =
        code.hasPrefix("08")
        ? .lost("PostgreSQL can't be reached: \(text)") : .refused("PostgreSQL: \(text)")
    }
  }
}
