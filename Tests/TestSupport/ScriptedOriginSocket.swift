internal import Foundation
internal import Glibc

/// A system call that failed.
package struct OriginError: Error {
  /// The name of the system call.
  package var call: String
  /// Its error number.
  package var code: Int32
}

/// - Returns: The listening socket and its port.
func listen(on host: String, port: Int) throws(OriginError) -> (Int32, Int) {
  var hints = addrinfo()
  hints.ai_flags = AI_NUMERICHOST
  hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
  var list: UnsafeMutablePointer<addrinfo>?
  guard getaddrinfo(host, "\(port)", &hints, &list) == 0, let info = list?.pointee else {
    throw OriginError(call: "getaddrinfo", code: errno)
  }
  defer { freeaddrinfo(list) }
  let descriptor = socket(info.ai_family, info.ai_socktype | Int32(SOCK_CLOEXEC.rawValue), 0)
  var on: Int32 = 1
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
  guard descriptor >= 0, bind(descriptor, info.ai_addr, info.ai_addrlen) == 0,
    Glibc.listen(descriptor, 4_096) == 0
  else { throw OriginError(call: "bind", code: errno) }
  return (descriptor, Int(port: descriptor))
}

extension Int {
  /// The port that a socket is bound to. It is at the same offset for IPv4 and IPv6.
  fileprivate init(port descriptor: Int32) {
    var address = sockaddr_in6()
    var length = socklen_t(MemoryLayout<sockaddr_in6>.size)
    withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        _ = getsockname(descriptor, $0, &length)
      }
    }
    self = Int(UInt16(bigEndian: address.sin6_port))
  }
}

/// Raises the limit on descriptors, because thousands of connections have both ends in one process.
func raiseDescriptorLimit() {
  var limit = rlimit()
  guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
  limit.rlim_cur = limit.rlim_max
  setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}

/// Starts a thread with a stack of 256 KiB, because there may be thousands.
func startSmallThread(_ body: @escaping @Sendable () -> Void) {
  let thread = Thread(block: body)
  thread.stackSize = 262_144
  thread.start()
}
