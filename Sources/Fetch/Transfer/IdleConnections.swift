internal import CCurl
internal import Glibc

/// The sockets of the HTTP/1.1 connections that libcurl keeps for later requests. Only the loop's thread uses
/// it.
///
/// Data on an idle connection answers no request: it is excess body, a second response, or the end of the
/// connection. libcurl before 8.0 detects only the end, and would read other data as the response to the next
/// request. Such a connection is therefore shut down here, and libcurl then closes it.
final class IdleConnections {
  /// Readable when data arrived on an idle connection.
  let epoll: Int32

  /// - Throws: `.noDescriptor`.
  init() throws(FetcherSetupError) {
    epoll = CCurl_newEpoll()
    guard epoll >= 0 else { throw .noDescriptor(errno: errno) }
  }

  deinit { close(epoll) }

  /// Adds a new connection, or one whose transfer has ended. Closing the socket removes it.
  func insert(_ socket: Int32) { CCurl_watchIdle(epoll, socket) }

  /// Removes a connection that a transfer uses.
  func remove(_ socket: Int32) { CCurl_unwatch(epoll, socket) }

  /// Shuts down the idle connections on which data arrived.
  /// - Returns: Whether there were any.
  @discardableResult
  func shutDownActive() -> Bool {
    withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 64) { events in
      var hasSpoken = false
      while true {
        let count = Int(epoll_wait(epoll, events.baseAddress!, Int32(events.count), 0))
        for event in events.prefix(max(0, count)) {
          remove(event.data.fd)
          Self.shutDown(event.data.fd)
        }
        hasSpoken = hasSpoken || count > 0
        if count < events.count { return hasSpoken }
      }
    }
  }

  /// Shuts the socket down first, so that the kernel resets the connection if more data arrives. Then empties
  /// it, because libcurl checks only its first byte.
  private static func shutDown(_ socket: Int32) {
    shutdown(socket, Int32(SHUT_RDWR))
    withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 1) { buffer in
      while recv(socket, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT)) > 0 {}
    }
  }
}
