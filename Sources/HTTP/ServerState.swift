import Logging
import Synchronization

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
