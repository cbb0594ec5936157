import Logging
internal import Synchronization

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
