internal import CMicroHTTPD
import Glibc
import Logging
import Synchronization

/// Runs libmicrohttpd's threads.
///
/// The daemon has no listening socket; the monitor accepts connections. With a listening socket,
/// `MHD_quiesce_daemon` aborts the process if a worker removes the socket from its epoll set at the same
/// moment.
///
/// `@unchecked Sendable`: the daemon's functions may be called from any thread. Only the monitor calls
/// `stop`, once.
final class Daemon: @unchecked Sendable {
  private let daemon: OpaquePointer
  private let context: Unmanaged<Monitor>
  private let strings: [UnsafeMutablePointer<CChar>]

  /// Starts the threads. `monitor` is retained until `stop`.
  init(_ monitor: Monitor) throws(ServerError) {
    let configuration = monitor.service.configuration
    context = Unmanaged.passRetained(monitor)
    let cores = max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    let threads = configuration.threads > 0 ? configuration.threads : cores
    let opaque = context.toOpaque()
    var options = [
      option(.EXTERNAL_LOGGER, CMicroHTTPD_logger(), opaque),
      option(.CONNECTION_MEMORY_LIMIT, configuration.poolSize),
      // The monitor counts connections. At its own limit libmicrohttpd closes connections silently, and its
      // thread can deadlock.
      option(.CONNECTION_LIMIT, 1 << 30),
      option(
        .CONNECTION_TIMEOUT, Int(max(1, configuration.idleTimeout.components.seconds))),
      option(.URI_LOG_CALLBACK, unsafeBitCast(requestLineReceived, to: Int.self), opaque),
      option(.UNESCAPE_CALLBACK, unsafeBitCast(disableUnescaping, to: Int.self)),
      option(.NOTIFY_COMPLETED, unsafeBitCast(requestEnded, to: Int.self), opaque),
      option(.NOTIFY_CONNECTION, unsafeBitCast(connectionChanged, to: Int.self), opaque),
    ]
    if threads > 1 { options.append(option(.THREAD_POOL_SIZE, threads)) }
    var flags =
      MHD_USE_EPOLL_INTERNAL_THREAD.rawValue | MHD_ALLOW_SUSPEND_RESUME.rawValue
      | MHD_USE_NO_LISTEN_SOCKET.rawValue | MHD_USE_ERROR_LOG.rawValue
    // This flag is level 1 of MHD_OPTION_CLIENT_DISCIPLINE_LVL, which the headers of 0.9.75 do not have.
    // Level 1 refuses bare CR and LF, folds, NULs, blanks in field names and targets, and Transfer-Encoding
    // with Content-Length. Level 2 also refuses an empty line before a request, which servers should ignore
    // (RFC 9112, section 2.2). Level 3 additionally refuses blanks after a chunk's size.
    if MicroHTTPDLibrary.isStrict { flags |= MHD_USE_PEDANTIC_CHECKS.rawValue }
    if let tls = configuration.tls {
      strings = [strdup(tls.certificate), strdup(tls.key)]
      flags |= MHD_USE_TLS.rawValue
      options.append(option(.HTTPS_MEM_CERT, 0, strings[0]))
      options.append(option(.HTTPS_MEM_KEY, 0, strings[1]))
    } else {
      strings = []
    }
    options.append(option(.END, 0))
    guard let daemon = CMicroHTTPD_start(flags, requestAdvanced, opaque, options) else {
      strings.forEach { free($0) }
      context.release()
      let detail = monitor.lastMessage
      throw configuration.tls == nil
        ? .resourcesExhausted(detail: detail) : .invalidCertificate(detail: detail)
    }
    self.daemon = daemon
  }

  /// Passes an accepted connection to the daemon, which then owns the descriptor, even if this fails.
  func add(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ size: socklen_t) -> Bool {
    MHD_add_connection(daemon, descriptor, address, size) == .YES
  }

  /// Closes all connections and stops the threads. No connection may be suspended.
  func stop() {
    MHD_stop_daemon(daemon)
    strings.forEach { free($0) }
    context.release()
  }
}

private func option(
  _ option: MHD_OPTION, _ value: Int, _ pointer: UnsafeMutableRawPointer? = nil
) -> MHD_OptionItem {
  MHD_OptionItem(option: option, value: value, ptr_value: pointer)
}

// libmicrohttpd's callbacks. It calls each from the thread that owns the connection. They are global
// functions, as C requires, and must not be isolated to an actor: an isolation check would trap on that
// thread.

/// Called when the request line was read and its target is not yet parsed. The result becomes the request's
/// context.
let requestLineReceived:
  @convention(c) (
    UnsafeMutableRawPointer?, UnsafePointer<CChar>?, OpaquePointer?
  ) -> UnsafeMutableRawPointer? = { _, target, handle in
    guard let handle, let context = CMicroHTTPD_socketContext(handle) else { return nil }
    connection(context).requestLineReceived(target)
    return context
  }

/// Disables percent-decoding of the target: `%00` would cut the path and `%2f` would become a slash.
let disableUnescaping:
  @convention(c) (
    UnsafeMutableRawPointer?, OpaquePointer?, UnsafeMutablePointer<CChar>?
  ) -> Int = { _, _, text in text.map { strlen($0) } ?? 0 }

/// Called for the complete head, then for each piece of content, then for the complete request.
let requestAdvanced: MHD_AccessHandlerCallback = {
  _, _, _, method, version, piece, size, context in
  guard let context = context?.pointee, let size else { return .NO }
  let connection = connection(context)
  switch connection.step {
  case .head:
    guard let method, let version else { return .NO }
    return connection.headReceived(method, version)
  case .gathering, .streaming:
    guard size.pointee > 0 else { return connection.requestCompleted() }
    let (result, taken) = connection.contentReceived(
      UnsafeRawBufferPointer(start: piece, count: size.pointee))
    size.pointee -= taken
    return result
  case .complete: return connection.requestCompleted()
  case .answered:
    size.pointee = 0
    return .YES
  }
}

/// Called when the request is finished or aborted.
let requestEnded: MHD_RequestCompletedCallback = { _, _, context, _ in
  guard let context = context?.pointee else { return }
  connection(context).requestEnded()
}

/// Called when a connection starts, and before it is closed.
let connectionChanged: MHD_NotifyConnectionCallback = { context, handle, socketContext, change in
  guard let context, let handle, let socketContext else { return }
  let monitor = Unmanaged<Monitor>.fromOpaque(context).takeUnretainedValue()
  switch change {
  case .CONNECTION_NOTIFY_STARTED:
    let place = monitor.slot(of: CMicroHTTPD_descriptor(handle))
    let connection = ClientConnection(
      id: monitor.service.nextID(), handle: handle, at: place, service: monitor.service)
    socketContext.pointee = Unmanaged.passRetained(connection).toOpaque()
    monitor.register(connection)
  case .CONNECTION_NOTIFY_CLOSED:
    guard let pointer = socketContext.pointee else { return }
    let connection = Unmanaged<ClientConnection>.fromOpaque(pointer).takeRetainedValue()
    socketContext.pointee = nil
    monitor.unregister(connection)
  }
}

/// Receives a log message of libmicrohttpd, formatted by `CMicroHTTPD_formatMessage`. Most report that a
/// client disconnected.
@_cdecl("imagefetch_http_message")
func receiveMessage(_ context: UnsafeMutableRawPointer, _ text: UnsafePointer<CChar>) {
  Unmanaged<Monitor>.fromOpaque(context).takeUnretainedValue().logLibraryMessage(
    String(cString: text))
}

private func connection(_ context: UnsafeMutableRawPointer) -> ClientConnection {
  Unmanaged<ClientConnection>.fromOpaque(context).takeUnretainedValue()
}

/// The libmicrohttpd that the process uses.
package enum MicroHTTPDLibrary {
  package static var version: String { String(cString: MHD_get_version()) }

  /// The releases that the tests passed with, oldest first. The server does not start with an older release.
  static let tested = ["0.9.75", "1.0.0", "1.0.1", "1.0.10"]

  /// Whether the library itself refuses heads whose lines could be split in two ways. Releases before 1.0 do
  /// not: see `BufferCheck`.
  static let isStrict = isStrict(version)

  static func isStrict(_ version: String) -> Bool {
    !numbers(version).lexicographicallyPrecedes([1, 0])
  }

  /// Logs a warning if the version was not tested.
  /// - Throws: `.libraryTooOld` if it is older than the oldest tested release.
  static func check(_ version: String = version, log: Logger) throws(ServerError) {
    let release = numbers(version)
    guard !release.lexicographicallyPrecedes(numbers(tested[0])) else {
      throw .libraryTooOld(version: version, oldest: tested[0])
    }
    guard !tested.contains(where: { numbers($0) == release }) else { return }
    log.warning(
      "this version of libmicrohttpd was not tested",
      metadata: ["version": "\(version)", "tested": "\(tested.joined(separator: ", "))"])
  }

  /// Returns the numbers of a release, without the suffix of a distribution or development version.
  private static func numbers(_ version: String) -> [Int] {
    version.prefix { $0.isNumber || $0 == "." }.split(separator: ".").map { Int($0) ?? .max }
  }
}

/// State that all connections of a server share.
final class ServerState: Sendable {
  let configuration: HTTPServer.Configuration
  let handler: RequestHandler
  let refusal: RefusalHandler
  let log: Logger

  private let open = Mutex<[UInt64: ClientConnection]>([:])
  private let counts = Counts()

  init(
    _ configuration: HTTPServer.Configuration, handler: @escaping RequestHandler,
    refusal: @escaping RefusalHandler, log: Logger
  ) {
    (self.configuration, self.handler) = (configuration, handler)
    (self.refusal, self.log) = (refusal, log)
  }

  private final class Counts: Sendable {
    let requests = Atomic(0)
    let active = Atomic(0)
    let waiting = Atomic(0)
    let ids = Atomic<UInt64>(0)
    let isDraining = Atomic(false)
    let isStopping = Atomic(false)
    let isEnding = Atomic(false)
  }

  // MARK: Connections

  /// Returns a number for a new connection; it is never used again.
  func nextID() -> UInt64 { counts.ids.add(1, ordering: .relaxed).newValue }

  func add(_ connection: ClientConnection) {
    open.withLock { $0[connection.id] = connection }
    if isEnding { connection.resumeForStop() }
  }

  func remove(_ connection: ClientConnection) {
    _ = open.withLock { $0.removeValue(forKey: connection.id) }
  }

  func connection(_ id: UInt64) -> ClientConnection? { open.withLock { $0[id] } }

  var connections: [ClientConnection] { open.withLock { Array($0.values) } }

  /// Whether a request may be answered on a connection slot for probes.
  func isProbe(_ head: RequestHead) -> Bool {
    configuration.probes.paths.contains(head.target.path) && head.declaredLength == 0
  }

  // MARK: Requests

  func requestBegan() {
    counts.requests.add(1, ordering: .relaxed)
    counts.active.add(1, ordering: .relaxed)
  }

  func requestEnded() { counts.active.subtract(1, ordering: .relaxed) }

  func handlerWaits() { counts.waiting.add(1, ordering: .relaxed) }

  func handlerWaited() { counts.waiting.subtract(1, ordering: .relaxed) }

  var requests: Int { counts.requests.load(ordering: .relaxed) }

  /// Requests that are being read, handled or answered.
  var active: Int { counts.active.load(ordering: .relaxed) }

  /// Handlers that are suspended or were, and have not finished.
  var waiting: Int { counts.waiting.load(ordering: .relaxed) }

  // MARK: Stopping

  /// Whether the connection is closed after the next response.
  var isDraining: Bool { counts.isDraining.load(ordering: .relaxed) }

  func drain() { counts.isDraining.store(true, ordering: .relaxed) }

  /// Whether streams must end now, because they would not end on their own.
  var isStopping: Bool { counts.isStopping.load(ordering: .sequentiallyConsistent) }

  func endStreams() {
    counts.isStopping.store(true, ordering: .sequentiallyConsistent)
    for connection in connections { connection.resumeStream() }
  }

  /// Whether suspending a connection is no longer allowed.
  var isEnding: Bool { counts.isEnding.load(ordering: .sequentiallyConsistent) }

  func resumeAll() {
    counts.isEnding.store(true, ordering: .sequentiallyConsistent)
    for connection in connections { connection.resumeForStop() }
  }
}

/// The number of connection slots, for regular clients and for probes.
struct ConnectionSlots: Sendable, Equatable {
  enum Kind: Sendable { case regular, probe }

  let regular: Int
  /// Additional slots. Only probes are answered on them.
  let probes: Int

  init(_ configuration: HTTPServer.Configuration) {
    regular = configuration.maxConnections
    probes = configuration.probeSlots
  }

  /// Returns the kind of slot for the next client. A regular slot is used if one is free or can be freed by
  /// evicting a connection that waits for a request. Otherwise a slot for probes is used by the same rule.
  ///
  /// - Parameter evict: Evicts connections of a kind. Returns whether there was one.
  func nextSlot(taken: Int, byProbes: Int, evict: (Kind) -> Bool) -> Kind? {
    if taken < regular || evict(.regular) { return .regular }
    if byProbes < probes || (probes > 0 && evict(.probe)) { return .probe }
    return nil
  }

  /// How many connections are evicted at once, so that a full table is not searched for each client.
  func evictionBatch(of kind: Kind) -> Int { max(1, (kind == .regular ? regular : probes) / 64) }
}
