internal import CCurl
internal import Glibc

/// The sockets of the HTTP/1.1 connections that libcurl keeps for later requests. The loop's thread alone touches them.
///
/// What comes on such a connection answers no request: bytes beyond a body's length, a second response, the end. libcurl
/// before 8.0 looks for the end only and would read the rest as the next request's response, so a connection on which
/// anything came is shut down here; libcurl then finds its end and lets it go.
final class IdleConnections {
  /// Readable when something came on one of them.
  let epoll: Int32

  /// - Throws: `.noDescriptor`.
  init() throws(FetcherSetupError) {
    epoll = CCurl_newEpoll()
    guard epoll >= 0 else { throw .noDescriptor(errno: errno) }
  }

  deinit { close(epoll) }

  /// A connection is new, or its last transfer is through with it. Closing its socket takes it out again.
  func insert(_ socket: Int32) { CCurl_watchIdle(epoll, socket) }

  /// A transfer waits for something to come on it.
  func remove(_ socket: Int32) { CCurl_unwatch(epoll, socket) }

  /// Shuts down those on which something came.
  /// - Returns: whether there were any.
  @discardableResult
  func shutDownSpoken() -> Bool {
    withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 64) { events in
      var hasSpoken = false
      while true {
        let count = Int(epoll_wait(epoll, events.baseAddress!, Int32(events.count), 0))
        for event in events.prefix(max(0, count)) {
          remove(event.data.fd)
          Self.end(event.data.fd)
        }
        hasSpoken = hasSpoken || count > 0
        if count < events.count { return hasSpoken }
      }
    }
  }

  /// First shut down, as what comes after that makes the kernel reset the connection; then emptied, as libcurl looks no
  /// further than the first byte.
  private static func end(_ socket: Int32) {
    shutdown(socket, Int32(SHUT_RDWR))
    withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 1) { buffer in
      while recv(socket, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT)) > 0 {}
    }
  }
}
