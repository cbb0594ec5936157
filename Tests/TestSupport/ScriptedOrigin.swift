internal import Glibc
internal import Synchronization

/// An origin server on loopback that does exactly what a test tells it, well or badly, and
/// remembers what it was asked.
///
/// ```swift
/// let origin = try ScriptedOrigin()
/// origin.on("/cat.png", .ok(png))
/// origin.on("/slow.png", .stalled(png, after: 100))
/// origin.on("/count") { request in .ok(Array(request.target.utf8)) }
/// ... origin.url("/cat.png") ...
/// #expect(origin.requests(to: "/cat.png").count == 1)
/// ```
///
/// Each connection has a small thread of its own, so that thousands may stall. Unknown paths are
/// 404.
public final class ScriptedOrigin: Sendable {
  private let log: OriginLog
  private let listener: Int32

  /// The address it listens on.
  public let host: String
  /// The port that the system chose.
  public let port: Int

  /// Listens, and accepts from now on.
  /// - Parameters:
  ///   - host: an IPv4 or IPv6 address of this machine.
  ///   - port: 0 for a free one.
  public init(host: String = "127.0.0.1", port: Int = 0) throws {
    raiseDescriptorLimit()
    (listener, self.port) = try listen(on: host, port: port)
    self.host = host
    log = OriginLog()
    startSmallThread { [log, listener] in acceptConnections(on: listener, log) }
  }

  deinit { stop() }

  /// Closes the listening socket and every connection.
  public func stop() {
    if log.stop() { shutdown(listener, Int32(SHUT_RDWR)) }
  }

  /// `http://host:port` and the path.
  public func url(_ path: String) -> String {
    "http://\(host.contains(":") ? "[\(host)]" : host):\(port)\(path)"
  }

  /// Answers every request for the path (its query is ignored) alike; replaces what was said
  /// before.
  public func on(_ path: String, _ reply: ScriptedReply) { on(path) { _ in reply } }

  /// Asks for the reply at each request for the path; called on the connection's thread.
  public func on(
    _ path: String, _ script: @escaping @Sendable (ScriptedRequest) -> ScriptedReply
  ) {
    log.state.withLock { $0.scripts[path] = script }
  }

  /// Answers the requests for the path by these scripts, one after the other; the last is repeated.
  public func on(
    _ path: String, inOrder scripts: (@Sendable (ScriptedRequest) -> ScriptedReply)...
  ) {
    let turns = Turns(scripts)
    on(path) { turns.next()($0) }
  }

  /// Answers the requests for the path with these replies in turn; the last one is repeated.
  public func on(_ path: String, inOrder replies: [ScriptedReply]) {
    let turns = Turns(replies)
    on(path) { _ in turns.next() }
  }

  /// The most requests that ever waited for the last part of their answers at the same time.
  public var mostAtOnce: Int { log.state.withLock { $0.most.count } }

  /// The same of the requests for a path.
  public func mostAtOnce(to path: String) -> Int {
    log.state.withLock { $0.byPath[path]?.most ?? 0 }
  }

  /// The requests that waited at the first moment when there were that many, in the order they came.
  /// - Parameter path: nil: whatever they were for.
  public func requestsAtMost(to path: String? = nil) -> [ScriptedRequest] {
    log.state.withLock { state in
      let step = path.map { state.byPath[$0]?.step ?? 0 } ?? state.most.step
      return state.unanswered(at: step).filter { path == nil || $0.path == path }
    }
  }

  /// Requests that wait for the last part of their answers now.
  public var unanswered: Int { log.state.withLock { $0.unanswered } }

  /// All requests so far, in the order they came.
  public var requests: [ScriptedRequest] { log.state.withLock { $0.requests } }

  /// The requests for a path.
  public func requests(to path: String) -> [ScriptedRequest] {
    requests.filter { $0.path == path }
  }

  /// Connections accepted so far.
  public var acceptedConnections: Int { log.state.withLock { $0.accepted } }

  /// Connections that are open now.
  public var openConnections: Int { log.state.withLock { $0.open.count } }

  /// Bytes that the kernel took for a connection.
  public func sentBytes(on connection: Int) -> Int {
    log.state.withLock { $0.sent[connection] ?? 0 }
  }

  /// When the client closed a connection; nil while it hasn't.
  public func closed(_ connection: Int) -> ContinuousClock.Instant? {
    log.state.withLock { $0.closed[connection] }
  }

  /// Waits until so many requests for the path have come.
  /// - Returns: whether they did in time.
  @discardableResult
  public func waitForRequests(
    to path: String, count: Int = 1, within limit: Duration = patience
  ) async -> Bool {
    await poll(within: limit) { self.requests(to: path).count >= count }
  }

  /// Waits until the client has closed a connection.
  /// - Returns: when it did; nil if it didn't in time.
  public func waitForClose(
    of connection: Int, within limit: Duration = patience
  ) async -> ContinuousClock.Instant? {
    await poll(within: limit) { self.closed(connection) != nil }
    return closed(connection)
  }
}

/// How long a test waits for what has to come, where it is not the time that it proves: what a machine takes that builds beside it.
public let patience = Duration.seconds(120)

/// Waits until the condition holds, looking every millisecond.
/// - Returns: whether it did in time.
@discardableResult
public func poll(within limit: Duration = patience, _ condition: () -> Bool) async -> Bool {
  let deadline = ContinuousClock.now + limit
  while !condition() {
    guard ContinuousClock.now < deadline else { return false }
    try? await Task.sleep(for: .milliseconds(1))
  }
  return true
}

/// Hands out elements in turn, the last one again and again.
private final class Turns<Element: Sendable>: Sendable {
  private let rest: Mutex<ArraySlice<Element>>

  /// - Parameter elements: one at least.
  init(_ elements: [Element]) { rest = Mutex(elements[...]) }

  func next() -> Element {
    rest.withLock { $0.count > 1 ? $0.removeFirst() : $0[$0.startIndex] }
  }
}

/// What an origin knows, shared by its threads.
final class OriginLog: Sendable {
  struct State {
    var scripts: [String: @Sendable (ScriptedRequest) -> ScriptedReply] = [:]
    var requests: [ScriptedRequest] = []
    var accepted = 0
    var open: [Int: Int32] = [:]
    var sent: [Int: Int] = [:]
    var closed: [Int: ContinuousClock.Instant] = [:]
    var unanswered = 0
    var most: (count: Int, step: Int) = (0, 0)
    var byPath: [String: (unanswered: Int, most: Int, step: Int)] = [:]
    /// From which step on, and until which one, each request waited for the last part of its answer: all such beginnings and
    /// ends are counted together. A list of who waited at each new maximum would cost too much with thousands.
    var waits: [(request: ScriptedRequest, begun: Int, ended: Int?)] = []
    var steps = 0
    var isStopped = false

    /// - Returns: its place among those that waited.
    mutating func begin(_ request: ScriptedRequest) -> Int {
      steps += 1
      waits.append((request, steps, nil))
      unanswered += 1
      if unanswered > most.count { most = (unanswered, steps) }
      var one = byPath[request.path, default: (0, 0, 0)]
      one.unanswered += 1
      if one.unanswered > one.most { (one.most, one.step) = (one.unanswered, steps) }
      byPath[request.path] = one
      return waits.count - 1
    }

    mutating func end(_ place: Int) {
      steps += 1
      waits[place].ended = steps
      unanswered -= 1
      byPath[waits[place].request.path]?.unanswered -= 1
    }

    func unanswered(at step: Int) -> [ScriptedRequest] {
      waits.filter { $0.begun <= step && step < $0.ended ?? .max }.map(\.request)
    }
  }

  let state = Mutex(State())

  /// - Returns: whether this was the first call.
  func stop() -> Bool {
    state.withLock { state in
      defer { state.isStopped = true }
      // Wakes the threads; each closes its own descriptor.
      for descriptor in state.open.values { shutdown(descriptor, Int32(SHUT_RDWR)) }
      return !state.isStopped
    }
  }
}
