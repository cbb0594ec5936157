internal import CMicroHTTPD
import Glibc
import Logging

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
