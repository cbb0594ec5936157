internal import Glibc
internal import Synchronization

func acceptConnections(on listener: Int32, _ log: OriginLog) {
  while true {
    let descriptor = accept(listener, nil, nil)
    guard descriptor >= 0 else {
      if [EINTR, ECONNABORTED, EMFILE].contains(errno) { continue }
      break
    }
    // A child process that another test starts must not inherit the connection.
    _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    let number = log.state.withLock { state -> Int? in
      guard !state.isStopped else { return nil }
      state.accepted += 1
      state.open[state.accepted] = descriptor
      return state.accepted
    }
    guard let number else {
      close(descriptor)
      break
    }
    startSmallThread { OriginConnection(descriptor, number, log).serve() }
  }
  close(listener)
}

/// A connection, served by a thread that blocks as the script requires.
struct OriginConnection {
  private let descriptor: Int32
  private let number: Int
  private let log: OriginLog

  init(_ descriptor: Int32, _ number: Int, _ log: OriginLog) {
    self.descriptor = descriptor
    self.number = number
    self.log = log
    _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
    var on: Int32 = 1
    setsockopt(
      descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
  }

  func serve() {
    var unread: [UInt8] = []
    while let head = readHead(&unread) {
      guard var request = ScriptedRequest(head: head, connection: number) else { break }
      if let length = request.header("content-length").flatMap({ Int($0) }) {
        guard let content = read(length, &unread) else { break }
        request.content = content
      }
      let script = log.state.withLock { state in
        state.requests.append(request)
        return state.scripts[request.path]
      }
      guard perform(script?(request) ?? .status(404), to: request) else { break }
    }
    log.state.withLock { $0.open[number] = nil }
    close(descriptor)
  }

  /// - Returns: Whether the connection stays open.
  private func perform(_ reply: ScriptedReply, to request: ScriptedRequest) -> Bool {
    let place = log.state.withLock { $0.begin(request) }
    // Before the last step, because after the response's last byte the client may send its next request at once.
    let isFirstPartDone = reply.steps.dropLast().allSatisfy(perform)
    log.state.withLock { $0.endWait(place) }
    return isFirstPartDone && reply.steps.suffix(1).allSatisfy(perform)
  }

  /// - Returns: Whether the connection stays open.
  private func perform(_ step: ScriptedReply.Step) -> Bool {
    switch step {
    case .send(let bytes): return send(bytes[...])
    case .repeating(let bytes):
      while send(bytes[...]) {}
      return false
    case .drip(let bytes, let size, let pause):
      return stride(from: 0, to: bytes.count, by: size).allSatisfy { start in
        send(bytes[start..<min(start + size, bytes.count)]) && wait(pause)
      }
    case .pause(let duration): return wait(duration)
    case .hold(let gate): return wait(for: gate)
    case .waitForClose: return wait(nil)
    case .close: return false
    case .reset:
      var linger = linger(l_onoff: 1, l_linger: 0)
      setsockopt(
        descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
      return false
    }
  }

  private func readHead(_ unread: inout [UInt8]) -> [UInt8]? {
    while true {
      if let end = unread.firstRange(of: Array("\r\n\r\n".utf8)) {
        defer { unread.removeSubrange(..<end.upperBound) }
        return Array(unread[..<end.lowerBound])
      }
      guard readMore(&unread) else { return nil }
    }
  }

  /// Reads a request's content; nil if it is incomplete.
  private func read(_ length: Int, _ unread: inout [UInt8]) -> [UInt8]? {
    while unread.count < length { guard readMore(&unread) else { return nil } }
    defer { unread.removeSubrange(..<length) }
    return Array(unread[..<length])
  }

  /// - Returns: False at the end of the connection.
  private func readMore(_ unread: inout [UInt8]) -> Bool {
    var chunk = [UInt8](repeating: 0, count: 8_192)
    while true {
      let events = poll(for: POLLIN, timeout: -1)
      let count = recv(descriptor, &chunk, chunk.count, 0)
      if count > 0 {
        unread += chunk[..<count]
        return true
      } else if count == 0 || events & closing != 0 || errno != EAGAIN {
        noteClosed()
        return false
      }
    }
  }

  private func send(_ bytes: ArraySlice<UInt8>) -> Bool {
    var rest = bytes
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes {
        Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
      }
      if count > 0 {
        log.state.withLock { $0.sent[number, default: 0] += count }
        rest = rest.dropFirst(count)
      } else if errno != EAGAIN || poll(for: POLLOUT, timeout: -1) & closing != 0 {
        noteClosed()
        return false
      }
    }
    return true
  }

  /// Waits for a while; nil to wait until the client closes.
  /// - Returns: Whether the connection is still open.
  private func wait(_ duration: Duration?) -> Bool {
    let timeout = duration.map { Int32($0 / .milliseconds(1)) } ?? -1
    guard poll(for: 0, timeout: timeout) & closing != 0 else { return true }
    noteClosed()
    return false
  }

  /// Waits until the gate is open or the client closes.
  /// - Returns: Whether the connection is still open.
  private func wait(for gate: Gate) -> Bool {
    var entries = [
      pollfd(fd: descriptor, events: 0x2000, revents: 0),
      pollfd(fd: gate.descriptor, events: Int16(POLLIN), revents: 0),
    ]
    while Glibc.poll(&entries, 2, -1) < 0 && errno == EINTR {}
    guard entries[0].revents & closing != 0 else { return true }
    noteClosed()
    return false
  }

  private func noteClosed() {
    log.state.withLock { state in
      if !state.isStopped { state.closed[number] = .now }
    }
  }

  private func poll(for events: Int32, timeout: Int32) -> Int16 {
    var entry = pollfd(fd: descriptor, events: Int16(events | 0x2000), revents: 0)
    while Glibc.poll(&entry, 1, timeout) < 0 && errno == EINTR {}
    return entry.revents
  }

  /// POLLRDHUP, POLLHUP and POLLERR. Swift's Glibc module lacks the first.
  private var closing: Int16 { Int16(0x2000 | POLLHUP | POLLERR) }
}
