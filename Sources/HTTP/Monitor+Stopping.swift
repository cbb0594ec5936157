import Logging
internal import Synchronization

extension Monitor {
  /// How far the stopping is. libmicrohttpd aborts the process if it is stopped with a connection
  /// suspended, so the order matters: no new connections, no streams, no handlers, no suspended
  /// connections, no daemon.
  enum Stopping: Equatable {
    case no
    /// Requests may finish till then.
    case draining(until: Instant)
    /// Handlers were cancelled; they have till then to return.
    case cancelled(until: Instant)
    /// Their answers have till then to be sent.
    case sending(until: Instant)
    case done
  }

  /// A handler that heeds no cancellation is left behind after so long.
  private static let handlerGrace: Instant = 5_000_000_000
  /// A client that does not take its answer is left behind after so long.
  private static let sendGrace: Instant = 1_000_000_000

  /// Does what other threads asked for, and takes the stopping one step on.
  func heed(_ time: Instant) {
    adoptLingering()
    if isListening { listenAgain() }
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
        service.log.warning("handlers left behind", metadata: ["count": "\(service.waiting)"])
      }
      stopping = .sending(until: time + Self.sendGrace)
    case .sending(let end):
      guard service.active == 0 || time >= end else { return }
      finish()
    }
  }

  private func finish() {
    service.end()
    daemon?.stop()
    daemon = nil
    adoptLingering()
    for name in Array(lingering.keys) { forget(name) }
    stopping = .done
    let waiters = requests.withLock { requests in
      requests.isStopped = true
      return requests.waiters
    }
    waiters.forEach { $0.resume() }
  }

  /// Asks for no more connections.
  func stopAccepting() {
    requests.withLock { $0.stopAccepting = true }
    events.wake()
  }

  /// Asks for the end, and waits for it.
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
