import Glibc

/// A raw TCP connection to a server on this machine. It sends the given bytes and closes when it is deallocated.
package final class RawConnection: Sendable {
  private let descriptor: Int32

  /// Why there is no connection.
  package struct Failure: Error { let code: Int32 }

  /// Connects.
  package init(_ port: Int) throws(Failure) {
    descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    var limit = timeval(tv_sec: 0, tv_usec: 200_000)
    setsockopt(
      descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = in_port_t(port).bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let result = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard result == 0 else { throw Failure(code: errno) }
  }

  deinit { close(descriptor) }

  /// Sends bytes until the server does not accept more for 200 ms.
  /// - Returns: Whether all bytes were sent.
  @discardableResult
  package func send(_ text: String) -> Bool {
    var rest = Array(text.utf8)[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes {
        Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
      }
      guard count > 0 else { return false }
      rest = rest.dropFirst(count)
    }
    return true
  }

  /// Whether a response starts within ten seconds. It is not read.
  package var isAnswered: Bool {
    var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return poll(&waiting, 1, 10_000) == 1 && waiting.revents & Int16(POLLHUP | POLLERR) == 0
  }
}
