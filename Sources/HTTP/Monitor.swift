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

/// Accepts connections. Also closes connections on which the client may still be sending.
extension Monitor {
  /// Accepts waiting connections while there are free slots.
  func accept() {
    for round in 0..<64 where isListening {
      // Another connection is evicted in the first round only: later rounds do not know whether a client is
      // waiting.
      let place = places.nextSlot(taken: taken, byProbes: takenByProbes) { kind in
        round == 0 && evict(kind)
      }
      guard let place, place == .regular || round == 0 else { return round == 0 ? pause() : () }
      var address = sockaddr_storage()
      var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
      let isAdded: Bool? = withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
          let descriptor = accept4(
            listener.descriptor, generic, &size, CMicroHTTPD_acceptFlags)
          guard descriptor >= 0 else { return nil }
          countOpened(descriptor, at: place)
          return daemon?.add(descriptor, generic, size) ?? false
        }
      }
      switch isAdded {
      case true: break
      case false: countClosed(place)
      case nil:
        // Without free descriptors, for example, epoll would report the listen queue again and again.
        if errno != EAGAIN && errno != ECONNABORTED && errno != EINTR { pause() }
        return
      }
    }
  }

  /// Closes the connections that have waited longest for a request.
  /// - Returns: Whether any was closed.
  private func evict(_ kind: ConnectionSlots.Kind) -> Bool {
    let idle = service.connections.compactMap { connection in
      connection.slot == kind ? connection.idleSince.map { (connection, since: $0) } : nil
    }
    let freed = idle.sorted { $0.since < $1.since }.prefix(places.evictionBatch(of: kind))
      .filter { connection, _ in connection.evict() }
    for _ in freed { countClosed(kind) }
    return !freed.isEmpty
  }

  private func pause() {
    isAccepting = false
    events.change(listener.descriptor, 0, as: Self.listening)
  }

  /// Accepts again after a pause, if there is a free slot.
  /// - Parameter mayEvict: Accept even without a free slot, because a connection may be evicted for the next
  ///   client.
  func resumeAccepting(mayEvict: Bool = false) {
    guard isListening, !isAccepting,
      mayEvict || taken < places.regular || takenByProbes < places.probes
    else { return }
    isAccepting = true
    events.change(listener.descriptor, CMicroHTTPD_readable, as: Self.listening)
  }

  /// Closes the listening socket.
  func closeListener() {
    guard isListening else { return }
    isListening = false
    service.drain()
    events.remove(listener.descriptor)
    close(listener.descriptor)
  }

  // MARK: Lingering

  // If a socket is closed with unread bytes, the kernel sends a reset, which can destroy the response on its
  // way. Remaining bytes are therefore read and dropped, up to a limit (RFC 9112, section 9.6).

  /// Starts watching the connections that were closed early.
  func adoptLingering() {
    for closing in drainNewlyLingering() {
      guard lingering.count < 256 else {
        close(closing.descriptor)
        continue
      }
      let name = Self.firstLingering + UInt64(closing.descriptor)
      lingering[name] = closing
      if !events.add(closing.descriptor, CMicroHTTPD_readable, as: name) { closeLingering(name) }
    }
  }

  /// Reads and drops what the client sends.
  func discard(_ name: UInt64) {
    guard let closing = lingering[name] else { return }
    withUnsafeTemporaryAllocation(byteCount: 64 << 10, alignment: 1) { buffer in
      let count = recv(closing.descriptor, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT))
      if count == 0 || (count < 0 && errno != EAGAIN) || count > closing.budget {
        closeLingering(name)
      } else {
        lingering[name]?.budget -= max(0, count)
      }
    }
  }

  func expireLingering(_ time: Instant) {
    for (name, closing) in lingering where time > closing.until { closeLingering(name) }
  }

  func closeLingering(_ name: UInt64) {
    guard let closing = lingering.removeValue(forKey: name) else { return }
    events.remove(closing.descriptor)
    close(closing.descriptor)
  }
}

extension Monitor {
  /// The stage of stopping. libmicrohttpd aborts the process if it is stopped while a connection is
  /// suspended. The order is therefore: no new connections, no streams, no handlers, no suspended
  /// connections, no daemon.
  enum Stopping: Equatable {
    case no
    /// Requests may finish until this time.
    case draining(until: Instant)
    /// Handlers were cancelled; they may return until this time.
    case cancelled(until: Instant)
    /// Responses may be sent until this time.
    case sending(until: Instant)
    case done
  }

  /// How long the server waits for handlers that ignore their cancellation, in nanoseconds.
  private static let handlerGrace: Instant = 5_000_000_000
  /// How long the server waits for clients that do not read their response, in nanoseconds.
  private static let sendGrace: Instant = 1_000_000_000

  /// Performs the requests of other threads, and advances the stage of stopping.
  func performRequests(_ time: Instant) {
    adoptLingering()
    if isListening { resumeAccepting() }
    let (stopAccepting, stopBy) = requests.withLock { ($0.stopAccepting, $0.stopBy) }
    if stopAccepting || stopBy != nil { closeListener() }
    guard let stopBy else { return }
    if stopping == .no {
      stopping = .draining(until: stopBy)
      service.endStreams()
    }
    advance(time, stopBy)
  }

  private func advance(_ time: Instant, _ stopBy: Instant) {
    switch stopping {
    case .no, .done: break
    case .draining:
      guard service.active == 0 || time >= stopBy else { return }
      service.connections.forEach { $0.cancel() }
      stopping = .cancelled(until: time + Self.handlerGrace)
    case .cancelled(let end):
      guard service.waiting == 0 || time >= end else { return }
      if service.waiting > 0 {
        service.log.warning(
          "stopping without waiting for handlers", metadata: ["count": "\(service.waiting)"])
      }
      stopping = .sending(until: time + Self.sendGrace)
    case .sending(let end):
      guard service.active == 0 || time >= end else { return }
      finish()
    }
  }

  private func finish() {
    service.resumeAll()
    daemon?.stop()
    daemon = nil
    adoptLingering()
    for name in Array(lingering.keys) { closeLingering(name) }
    stopping = .done
    let waiters = requests.withLock { requests in
      requests.isStopped = true
      return requests.waiters
    }
    waiters.forEach { $0.resume() }
  }

  /// Requests that no more connections are accepted.
  func stopAccepting() {
    requests.withLock { $0.stopAccepting = true }
    events.wake()
  }

  /// Requests the stop, and waits until it is done.
  func stop(by deadline: Instant) async {
    await withCheckedContinuation { waiter in
      let isStopped = requests.withLock { requests in
        guard !requests.isStopped else { return true }
        requests.stopBy = min(requests.stopBy ?? deadline, deadline)
        requests.waiters.append(waiter)
        return false
      }
      if isStopped { waiter.resume() }
      events.wake()
    }
  }
}
