internal import CMicroHTTPD
import Glibc
import Logging
import Synchronization

/// The server's own thread, in addition to libmicrohttpd's. It accepts connections, notices clients that
/// disconnect while their request is handled, closes slow connections, sends keep-alive bytes on silent
/// streams, and stops the server in order.
///
/// `@unchecked Sendable`: only the monitor's thread uses the variables below `Only the monitor's thread`.
final class Monitor: @unchecked Sendable {
  let service: ServerState
  let listener: Listener
  let events: EventSet
  let requests = Mutex(Requests())
  let places: ConnectionSlots
  private let open = Atomic(0)
  private let openForProbes = Atomic(0)
  /// Descriptors accepted for probes whose connection has not started yet.
  private let probes = Mutex<Set<Int32>>([])
  private let message = Mutex("")
  private let newlyLingering = Mutex<[LingeringClose]>([])

  /// Requests of other threads to this thread.
  struct Requests {
    var stopAccepting = false
    var stopBy: Instant?
    var waiters: [CheckedContinuation<Void, Never>] = []
    var isStopped = false
  }

  /// A connection that libmicrohttpd has closed, but whose client may still be sending.
  struct LingeringClose {
    let descriptor: Int32
    let until: Instant
    /// The number of bytes that are still read.
    var budget = 8 << 20
  }

  // Only the monitor's thread
  var daemon: Daemon?
  var isListening = true
  var isAccepting = true
  var stopping = Stopping.no
  var lingering: [UInt64: LingeringClose] = [:]
  private var nextSweep: Instant = 0

  static let listening: UInt64 = .max - 1
  /// Names from this one on are descriptors of lingering connections.
  static let firstLingering: UInt64 = 1 << 62

  init(_ service: ServerState) throws(ServerError) {
    self.service = service
    places = ConnectionSlots(service.configuration)
    events = try EventSet()
    listener = try Listener(host: service.configuration.host, port: service.configuration.port)
    events.add(listener.descriptor, CMicroHTTPD_readable, as: Self.listening)
  }

  /// Starts libmicrohttpd's threads and the monitor's thread.
  func start() throws(ServerError) {
    do throws(ServerError) {
      daemon = try Daemon(self)
    } catch {
      close(listener.descriptor)
      throw error
    }
    var thread = pthread_t()
    let code = pthread_create(
      &thread, nil,
      { context in
        Unmanaged<Monitor>.fromOpaque(context!).takeRetainedValue().run()
        return nil
      }, Unmanaged.passRetained(self).toOpaque())
    guard code == 0 else {
      Unmanaged.passUnretained(self).release()
      daemon?.stop()
      close(listener.descriptor)
      throw .resourcesExhausted(
        detail: "failed to start a thread: \(String(cString: strerror(code)))")
    }
    pthread_detach(thread)
  }

  private func run() {
    while stopping != .done {
      for name in events.wait(milliseconds: tick) {
        switch name {
        case EventSet.woken: break
        case Self.listening: accept()
        case Self.firstLingering...: discard(name)
        default: service.connection(name)?.clientDisconnected()
        }
      }
      let time = now()
      if time >= nextSweep {
        nextSweep = time + UInt64(sweepInterval) * 1_000_000
        sweep(time)
      }
      performRequests(time)
    }
  }

  /// The time between checks of deadlines in milliseconds: a quarter of the timeout, at most 1 s.
  private var sweepInterval: Int {
    Int(min(1_000_000_000, service.configuration.requestTimeout.nanoseconds / 4) / 1_000_000) + 1
  }

  private var tick: Int { stopping == .no ? sweepInterval : 2 }

  private func sweep(_ time: Instant) {
    for connection in service.connections {
      connection.enforceDeadline(time, service.configuration)
      connection.sendKeepAliveIfDue(time)
    }
    expireLingering(time)
    // Also after a pause for lack of descriptors, and if a connection can be evicted by now.
    resumeAccepting(mayEvict: true)
  }

  // MARK: Connections, from libmicrohttpd's threads

  /// Registers a connection that has started.
  func register(_ connection: ClientConnection) {
    service.add(connection)
    events.add(
      connection.descriptor, CMicroHTTPD_halfClosedOnce, as: connection.id)
  }

  /// Removes a connection. Its descriptor is closed as soon as this returns.
  func unregister(_ connection: ClientConnection) {
    events.remove(connection.descriptor)
    let wasEvicted = connection.state.withLock { state in
      state.isClosed = true
      return state.isEvicted
    }
    service.remove(connection)
    if connection.lingers {
      let copy = fcntl(connection.descriptor, F_DUPFD_CLOEXEC, 3)
      if copy >= 0 {
        newlyLingering.withLock {
          $0.append(LingeringClose(descriptor: copy, until: now() + 2_000_000_000))
        }
        events.wake()
      }
    }
    if !wasEvicted, countClosed(connection.slot) { events.wake() }
  }

  func drainNewlyLingering() -> [LingeringClose] {
    newlyLingering.withLock { all in
      defer { all = [] }
      return all
    }
  }

  /// Counts an accepted connection.
  func countOpened(_ descriptor: Int32, at place: ConnectionSlots.Kind) {
    switch place {
    case .regular: open.add(1, ordering: .relaxed)
    case .probe:
      openForProbes.add(1, ordering: .relaxed)
      _ = probes.withLock { $0.insert(descriptor) }
    }
  }

  /// Returns the kind of slot that a starting connection was accepted for.
  func slot(of descriptor: Int32) -> ConnectionSlots.Kind {
    guard places.probes > 0 else { return .regular }
    return probes.withLock { $0.remove(descriptor) } == nil ? .regular : .probe
  }

  /// Counts a closed connection. Returns true if there was no free slot before.
  @discardableResult
  func countClosed(_ place: ConnectionSlots.Kind) -> Bool {
    switch place {
    case .regular: open.subtract(1, ordering: .relaxed).oldValue >= places.regular
    case .probe: openForProbes.subtract(1, ordering: .relaxed).oldValue >= places.probes
    }
  }

  /// Open connections, except those for probes.
  var taken: Int { open.load(ordering: .relaxed) }

  /// Open connections for probes.
  var takenByProbes: Int { openForProbes.load(ordering: .relaxed) }

  /// Logs a message of libmicrohttpd.
  func logLibraryMessage(_ text: String) {
    let text = String(text.prefix { $0 != "\n" })
    message.withLock { $0 = text }
    if text.hasPrefix(Self.preemptible) { preempt(text) }
    service.log.debug("message from libmicrohttpd", metadata: ["message": "\(text)"])
  }

  /// The last message of libmicrohttpd.
  var lastMessage: String { message.withLock { $0 } }
}
