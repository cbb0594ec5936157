internal import CMicroHTTPD
import Glibc
import Logging

/// Accepting, and the last of connections that were closed before their client had done.
extension Monitor {
  /// Accepts what waits, as long as there is a place.
  func accept() {
    for round in 0..<64 where isListening {
      // Whether somebody else waits for the place of another is known in the first round only.
      let place = places.next(taken: taken, byProbes: takenByProbes) { kind in
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
          opened(descriptor, at: place)
          return daemon?.add(descriptor, generic, size) ?? false
        }
      }
      switch isAdded {
      case true: break
      case false: closed(place)
      case nil:
        // Out of descriptors, for instance: the listen queue would be reported again and again.
        if errno != EAGAIN && errno != ECONNABORTED && errno != EINTR { pause() }
        return
      }
    }
  }

  /// Closes connections that have waited longest for a request.
  /// - Returns: whether there was one.
  private func evict(_ kind: Places.Kind) -> Bool {
    let idle = service.connections.compactMap { connection in
      connection.place == kind ? connection.idleSince.map { (connection, since: $0) } : nil
    }
    let freed = idle.sorted { $0.since < $1.since }.prefix(places.evicted(of: kind))
      .filter { connection, _ in connection.evict() }
    for _ in freed { closed(kind) }
    return !freed.isEmpty
  }

  private func pause() {
    isAccepting = false
    events.change(listener.descriptor, 0, as: Self.listening)
  }

  /// Accepts again after a pause, if there is a place.
  /// - Parameter looking: also where there may be one once somebody asks for it.
  func listenAgain(looking: Bool = false) {
    guard isListening, !isAccepting,
      looking || taken < places.regular || takenByProbes < places.probes
    else { return }
    isAccepting = true
    events.change(listener.descriptor, CMicroHTTPD_readable, as: Self.listening)
  }

  /// Refuses new connections from now on.
  func closeListener() {
    guard isListening else { return }
    isListening = false
    service.drain()
    events.remove(listener.descriptor)
    close(listener.descriptor)
  }

  // MARK: Lingering

  // Closing with unread bytes makes the kernel send a reset, which may overtake the answer and
  // destroy it. So what still comes is read and dropped, within bounds (RFC 9112, section 9.6).

  /// Takes over the connections that were closed early.
  func adoptLingering() {
    for closing in takeLingering() {
      guard lingering.count < 256 else {
        close(closing.descriptor)
        continue
      }
      let name = Self.firstLingering + UInt64(closing.descriptor)
      lingering[name] = closing
      if !events.add(closing.descriptor, CMicroHTTPD_readable, as: name) { forget(name) }
    }
  }

  /// Reads and drops.
  func discard(_ name: UInt64) {
    guard let closing = lingering[name] else { return }
    withUnsafeTemporaryAllocation(byteCount: 64 << 10, alignment: 1) { buffer in
      let count = recv(closing.descriptor, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT))
      if count == 0 || (count < 0 && errno != EAGAIN) || count > closing.budget {
        forget(name)
      } else {
        lingering[name]?.budget -= max(0, count)
      }
    }
  }

  func expireLingering(_ time: Instant) {
    for (name, closing) in lingering where time > closing.until { forget(name) }
  }

  func forget(_ name: UInt64) {
    guard let closing = lingering.removeValue(forKey: name) else { return }
    events.remove(closing.descriptor)
    close(closing.descriptor)
  }
}
