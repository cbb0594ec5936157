internal import Glibc
internal import Synchronization

/// An origin server on loopback that does exactly what a test scripts, correctly or incorrectly, and records the requests.
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
/// Each connection has a thread with a small stack, so that thousands can stall. Unknown paths are answered with 404.
package final class ScriptedOrigin: Sendable {
  private let log: OriginLog
  private let listener: Int32

  /// The address that it listens on.
  package let host: String
  /// The port that the system chose.
  package let port: Int

  /// Listens and accepts connections.
  /// - Parameters:
  ///   - host: an IPv4 or IPv6 address of this machine.
  ///   - port: 0 for a free one.
  package init(host: String = "127.0.0.1", port: Int = 0) throws {
    raiseDescriptorLimit()
    (listener, self.port) = try listen(on: host, port: port)
    self.host = host
    log = OriginLog()
    startSmallThread { [log, listener] in acceptConnections(on: listener, log) }
  }

  deinit { stop() }

  /// Closes the listening socket and every connection.
  package func stop() {
    if log.stop() { shutdown(listener, Int32(SHUT_RDWR)) }
  }

  /// `http://host:port` and the path.
  package func url(_ path: String) -> String {
    "http://\(host.contains(":") ? "[\(host)]" : host):\(port)\(path)"
  }

  /// Answers every request for the path (its query is ignored) with this reply. Replaces earlier scripts of the path.
  package func on(_ path: String, _ reply: ScriptedReply) { on(path) { _ in reply } }

  /// Calls a function for the reply to each request for the path, on the connection's thread.
  package func on(
    _ path: String, _ script: @escaping @Sendable (ScriptedRequest) -> ScriptedReply
  ) {
    log.state.withLock { $0.scripts[path] = script }
  }

  /// Answers the requests for the path with these scripts, one after the other. The last one is repeated.
  package func on(
    _ path: String, inOrder scripts: (@Sendable (ScriptedRequest) -> ScriptedReply)...
  ) {
    let turns = Turns(scripts)
    on(path) { turns.next()($0) }
  }

  /// Answers the requests for the path with these replies in turn. The last one is repeated.
  package func on(_ path: String, inOrder replies: [ScriptedReply]) {
    let turns = Turns(replies)
    on(path) { _ in turns.next() }
  }

  /// The maximum number of requests that waited for the end of their responses at the same time.
  package var mostAtOnce: Int { log.state.withLock { $0.most.count } }

  /// The same for the requests for a path.
  package func mostAtOnce(to path: String) -> Int {
    log.state.withLock { $0.byPath[path]?.most ?? 0 }
  }

  /// The requests that waited when the maximum was first reached, in the order of arrival.
  /// - Parameter path: nil for all paths.
  package func requestsAtMost(to path: String? = nil) -> [ScriptedRequest] {
    log.state.withLock { state in
      let step = path.map { state.byPath[$0]?.step ?? 0 } ?? state.most.step
      return state.unanswered(at: step).filter { path == nil || $0.path == path }
    }
  }

  /// The number of requests that wait for the end of their responses now.
  package var unanswered: Int { log.state.withLock { $0.unanswered } }

  /// All requests so far, in the order of arrival.
  package var requests: [ScriptedRequest] { log.state.withLock { $0.requests } }

  /// The requests for a path.
  package func requests(to path: String) -> [ScriptedRequest] {
    requests.filter { $0.path == path }
  }

  /// Connections accepted so far.
  package var acceptedConnections: Int { log.state.withLock { $0.accepted } }

  /// The number of open connections.
  package var openConnections: Int { log.state.withLock { $0.open.count } }

  /// Bytes that the kernel accepted for a connection.
  package func sentBytes(on connection: Int) -> Int {
    log.state.withLock { $0.sent[connection] ?? 0 }
  }

  /// When the client closed a connection; nil if it is open.
  package func closed(_ connection: Int) -> ContinuousClock.Instant? {
    log.state.withLock { $0.closed[connection] }
  }

  /// Waits until this number of requests for the path has arrived.
  /// - Returns: False if the time passed first.
  @discardableResult
  package func waitForRequests(
    to path: String, count: Int = 1, within limit: Duration = patience
  ) async -> Bool {
    await poll(within: limit) { self.requests(to: path).count >= count }
  }

  /// Waits until the client has closed a connection.
  /// - Returns: When it was closed; nil if the time passed first.
  package func waitForClose(
    of connection: Int, within limit: Duration = patience
  ) async -> ContinuousClock.Instant? {
    await poll(within: limit) { self.closed(connection) != nil }
    return closed(connection)
  }
}

/// How long a test waits for an event, unless the time itself is tested. Sufficient for a machine that builds at the same time.
package let patience = Duration.seconds(120)

/// Checks the condition every millisecond until it holds.
/// - Returns: False if the time passed first.
@discardableResult
package func poll(within limit: Duration = patience, _ condition: () -> Bool) async -> Bool {
  let deadline = ContinuousClock.now + limit
  while !condition() {
    guard ContinuousClock.now < deadline else { return false }
    try? await Task.sleep(for: .milliseconds(1))
  }
  return true
}

/// Returns elements in turn, then the last one repeatedly.
private final class Turns<Element: Sendable>: Sendable {
  private let rest: Mutex<ArraySlice<Element>>

  /// - Parameter elements: at least one.
  init(_ elements: [Element]) { rest = Mutex(elements[...]) }

  func next() -> Element {
    rest.withLock { $0.count > 1 ? $0.removeFirst() : $0[$0.startIndex] }
  }
}

/// The origin's records, shared by its threads.
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
    /// The step at which each request started to wait for the end of its response, and at which that ended. Starts and ends are
    /// numbered together. Storing the waiting requests at each new maximum would be too slow with thousands of requests.
    var waits: [(request: ScriptedRequest, begun: Int, ended: Int?)] = []
    var steps = 0
    var isStopped = false

    /// - Returns: The index in `waits`.
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

    mutating func endWait(_ place: Int) {
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

  /// - Returns: Whether this was the first call.
  func stop() -> Bool {
    state.withLock { state in
      defer { state.isStopped = true }
      // Wake the threads. Each closes its own descriptor.
      for descriptor in state.open.values { shutdown(descriptor, Int32(SHUT_RDWR)) }
      return !state.isStopped
    }
  }
}
