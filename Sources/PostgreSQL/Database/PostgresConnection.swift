internal import CPQ
internal import Glibc

/// One connection to the server. Only one thread uses it at a time.
///
/// No call blocks beyond its deadline. If the server does not answer by then, the connection is
/// marked unusable and must be closed: libpq has no other way to end the wait.
final class Connection {
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

  typealias Deadline = ContinuousClock.Instant

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
    guard Self.understands(address.url) else { throw .refused("that is no PostgreSQL URL") }
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
    guard let handle else { throw .lost("there is no memory for a connection") }
    guard PQstatus(handle) == CONNECTION_OK, PQsetnonblocking(handle, 1) == 0 else {
      defer { PQfinish(handle) }
      throw .lost(Self.message(handle))
    }
    PQsetNoticeReceiver(handle, { _, _ in }, nil)
    self.handle = handle
  }

  deinit { PQfinish(handle) }

  /// The version of libpq, in the same form as ``serverVersion``.
  static var libraryVersion: Int { Int(PQlibVersion()) }

  /// The version of the server, for example 150007 for 15.7.
  var serverVersion: Int { Int(PQserverVersion(handle)) }

  /// Runs statements without arguments in one round trip.
  /// - Returns: the rows of the last statement, as text.
  @discardableResult
  func run(_ script: String, by deadline: Deadline) throws(Fault) -> Rows {
    _ = try exchange(by: deadline)
    guard PQsendQuery(handle, script) == 1 else { throw markBroken() }
    return try receiveResult(by: deadline)
  }

  /// Runs a statement. The server parses it only the first time.
  @discardableResult
  func execute(_ sql: String, _ values: [SQLValue], by deadline: Deadline) throws(Fault) -> Rows {
    guard pending.isEmpty else {
      return try executeAll([SQLStatement(sql, values)], by: deadline)[0]
    }
    try send(Pending(name: prepare(sql, values.map(\.type), by: deadline), values: values))
    return try receiveResult(by: deadline)
  }

  /// Runs statements in one round trip, together with the queued ones. If one fails, those after it are not run.
  /// - Returns: the rows of each statement.
  func executeAll(
    _ statements: [SQLStatement], by deadline: Deadline
  ) throws(Fault) -> [Rows] {
    guard !statements.isEmpty else { return [] }
    for statement in statements { try enqueue(statement.sql, statement.values, by: deadline) }
    return try exchange(by: deadline).suffix(statements.count)
  }

  /// Queues a statement that is sent with the next one in the same round trip. If it fails, the
  /// next one is not run and throws the error.
  func enqueue(_ sql: String, _ values: [SQLValue], by deadline: Deadline) throws(Fault) {
    let name = try prepare(sql, values.map(\.type), by: deadline)
    pending.append(Pending(name: name, values: values))
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
      case PGRES_TUPLES_OK, PGRES_COMMAND_OK, PGRES_EMPTY_QUERY: last = Rows(result)
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
      case PGRES_TUPLES_OK, PGRES_COMMAND_OK, PGRES_EMPTY_QUERY: all.append(Rows(result))
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
      throw .refused("an answer of more than \(Self.largestAnswer) bytes")
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
extension Connection {
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
extension Connection {
  private func markBroken() -> Fault {
    isUsable = false
    return .lost(Self.message(handle))
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

  /// libpq's error message in one line; libpq writes one line for each address that it tried.
  private static func message(_ handle: OpaquePointer) -> String {
    let text = PQerrorMessage(handle).map { String(cString: $0) } ?? ""
    let lines = text.split(whereSeparator: \.isNewline)
    return lines.map { $0.drop(while: \.isWhitespace) }.joined(separator: "; ")
  }
}
