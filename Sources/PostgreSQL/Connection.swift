internal import CPQ
internal import Glibc

/// One connection to the server, of one thread at a time.
///
/// No call waits beyond its deadline: where the server stops answering the socket is closed, as nothing else ends a wait
/// for it, and the connection is of no use any more.
final class Connection {
  /// Where the server is and how long to wait for it.
  struct Address: Sendable {
    /// `postgresql://user@host/database?…`
    var url: String
    /// Asked for each connection; nil: as libpq finds one (PGPASSWORD, ~/.pgpass), or none.
    var password: @Sendable () -> String? = { nil }
    /// For one host of the URL to be connected with, where the URL has no `connect_timeout`, in whole seconds; libpq waits for
    /// two at least.
    var connectTimeout = 3
    /// What the server calls the connection (pg_stat_activity), where the URL says nothing.
    var application = "imagefetch"
  }

  typealias Deadline = ContinuousClock.Instant

  private let handle: OpaquePointer
  private var prepared: [String: String] = [:]

  private struct Pending {
    /// Of the prepared statement.
    var name: String
    var values: [SQLValue]
  }

  /// What is sent with the next statement.
  private var pending: [Pending] = []
  /// False once it broke.
  private(set) var isUsable = true
  /// Of one statement's answer: nothing here asks for as much, so that more is no answer but an attack.
  private static let largestAnswer = 1 << 29

  /// Whether libpq understands a URL. What it says of one that it doesn't has the URL in it, and so maybe a password.
  static func understands(_ url: String) -> Bool {
    guard let options = PQconninfoParse(url, nil) else { return false }
    PQconninfoFree(options)
    return true
  }

  /// Connects, and blocks for as long as that may take.
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
    // A `dbname` that is a URL is taken apart: its options win over those before it, and those after it win over its own.
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

  /// Of libpq, in the same form.
  static var libraryVersion: Int { Int(PQlibVersion()) }

  /// Of the server, such as 150007 for 15.7.
  var serverVersion: Int { Int(PQserverVersion(handle)) }

  /// Runs statements without arguments, one after the other, in one round trip.
  /// - Returns: the last one's rows, as text.
  @discardableResult
  func run(_ script: String, by deadline: Deadline) throws(Fault) -> Rows {
    if !pending.isEmpty { _ = try exchange(by: deadline) }
    guard PQsendQuery(handle, script) == 1 else { throw broken() }
    return try answer(by: deadline)
  }

  /// Runs a statement, which the server parses and plans the first time only.
  @discardableResult
  func execute(_ sql: String, _ values: [SQLValue], by deadline: Deadline) throws(Fault) -> Rows {
    guard pending.isEmpty else {
      try add(sql, values, by: deadline)
      return try exchange(by: deadline)
    }
    try send(Pending(name: prepare(sql, values.map(\.type), by: deadline), values: values))
    return try answer(by: deadline)
  }

  /// Has a statement run ahead of the next one, in the same round trip. Where it fails, the next one does, which is not run.
  func add(_ sql: String, _ values: [SQLValue], by deadline: Deadline) throws(Fault) {
    let name = try prepare(sql, values.map(\.type), by: deadline)
    pending.append(Pending(name: name, values: values))
  }

  /// Forgets what was added and not yet sent.
  func forgetAdded() { pending = [] }

  /// Whether a transaction has begun at the server and not ended.
  var isInTransaction: Bool { PQtransactionStatus(handle) != PQTRANS_IDLE }

  /// Sends what was added as a pipeline.
  /// - Returns: the last one's rows.
  private func exchange(by deadline: Deadline) throws(Fault) -> Rows {
    let statements = pending
    pending = []
    guard PQenterPipelineMode(handle) == 1 else { throw broken() }
    for statement in statements { try send(statement) }
    guard PQpipelineSync(handle) == 1 else { throw broken() }
    let rows = try pipelined(statements.count, by: deadline)
    guard PQexitPipelineMode(handle) == 1 else { throw broken() }
    return try rows.get()
  }

  private func send(_ statement: Pending) throws(Fault) {
    let encoded = statement.values.map(\.encoded)
    let lengths = encoded.map { Int32($0?.count ?? 0) }
    let formats = [Int32](repeating: 1, count: encoded.count)
    // One buffer for all: a pointer to each argument has to last for the call only.
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
    guard isSent else { throw broken() }
  }

  private func prepare(
    _ sql: String, _ types: [UInt32], by deadline: Deadline
  ) throws(Fault) -> String {
    if let name = prepared[sql] { return name }
    let name = "s\(prepared.count)"
    guard PQsendPrepare(handle, name, sql, Int32(types.count), types) == 1 else { throw broken() }
    _ = try answer(by: deadline)
    prepared[sql] = name
    return name
  }

  /// Sends what is left to send, and waits for all that the server says to it.
  private func answer(by deadline: Deadline) throws(Fault) -> Rows {
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
    if PQstatus(handle) != CONNECTION_OK { throw broken() }
    if let fault { throw fault }
    guard let last else { throw broken() }
    return last
  }

  /// Waits for all that the server says to a pipeline of so many statements.
  private func pipelined(_ count: Int, by deadline: Deadline) throws(Fault) -> Result<Rows, Fault> {
    try flush(by: deadline)
    var last: Rows?
    var fault: Fault?
    var (received, ends) = (0, 0)
    while true {
      while PQisBusy(handle) == 1 { try receive(&received, by: deadline) }
      guard let result = PQgetResult(handle) else {
        // The end of one statement's answer.
        ends += 1
        guard ends <= count, PQstatus(handle) == CONNECTION_OK else { throw broken() }
        continue
      }
      switch PQresultStatus(result) {
      case PGRES_TUPLES_OK, PGRES_COMMAND_OK, PGRES_EMPTY_QUERY: last = Rows(result)
      case PGRES_PIPELINE_ABORTED: PQclear(result)
      case PGRES_PIPELINE_SYNC:
        PQclear(result)
        guard PQstatus(handle) == CONNECTION_OK else { throw broken() }
        if let fault { return .failure(fault) }
        guard let last else { throw broken() }
        return .success(last)
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
        // The server may have something to say before it takes more.
        if try wait(for: POLLIN | POLLOUT, by: deadline) & POLLIN != 0 {
          guard PQconsumeInput(handle) == 1 else { throw broken() }
        }
      default: throw broken()
      }
    }
  }

  private func receive(_ received: inout Int, by deadline: Deadline) throws(Fault) {
    try wait(for: POLLIN, by: deadline)
    let before = waiting
    guard PQconsumeInput(handle) == 1 else { throw broken() }
    // libpq takes some kilobytes at a time, and more may have come meanwhile.
    received += max(before - waiting, min(before, 8_192))
    guard received <= Self.largestAnswer else {
      isUsable = false
      throw .refused("an answer of more than \(Self.largestAnswer) bytes")
    }
  }

  /// Bytes that came and were not read.
  private var waiting: Int {
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
      if count < 0, errno != EINTR { throw broken() }
    }
  }
}

/// Notifications.
extension Connection {
  /// Where libpq reads from.
  var socket: Int32 { PQsocket(handle) }

  /// Takes what has arrived.
  /// - Returns: the payloads.
  func notifications() throws(Fault) -> [String] {
    guard PQconsumeInput(handle) == 1 else { throw broken() }
    var payloads: [String] = []
    while let notification = PQnotifies(handle) {
      if let payload = notification.pointee.extra { payloads.append(String(cString: payload)) }
      PQfreemem(notification)
    }
    return payloads
  }
}

/// What went wrong.
extension Connection {
  private func broken() -> Fault {
    isUsable = false
    return .lost(Self.message(handle))
  }

  private func fault(_ result: OpaquePointer) -> Fault {
    // PG_DIAG_SQLSTATE and PG_DIAG_MESSAGE_PRIMARY are characters in C. Details are left out: they name values.
    let code = PQresultErrorField(result, Int32(UInt8(ascii: "C"))).map { String(cString: $0) }
    let text = PQresultErrorField(result, Int32(UInt8(ascii: "M"))).map { String(cString: $0) }
    guard let code else { return broken() }
    let fault = Fault(code: code, message: text ?? "no message")
    switch fault {
    case .lost, .late: isUsable = false
    default: break
    }
    return fault
  }

  /// In one line: libpq tells of each address it tried in one of its own.
  private static func message(_ handle: OpaquePointer) -> String {
    let text = PQerrorMessage(handle).map { String(cString: $0) } ?? ""
    let lines = text.split(whereSeparator: \.isNewline)
    return lines.map { $0.drop(while: \.isWhitespace) }.joined(separator: "; ")
  }
}
