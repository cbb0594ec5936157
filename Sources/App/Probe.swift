internal import Foundation
internal import Glibc
internal import HTTP

/// The health check of the `health` command: one HTTP request to a service on this machine, over a plain socket.
package enum Probe {
  /// Why the check failed.
  package struct Failure: Error, CustomStringConvertible {
    /// One line of text.
    package let description: String
  }

  /// Sends a GET request and waits up to two seconds for status 200. With TLS it only checks that a connection opens.
  package static func check(_ path: String, of service: Configuration) throws(Failure) {
    let descriptor = try connect(to: service.http)
    defer { close(descriptor) }
    guard service.server.tls.certificate == nil else { return }
    let request = Array("GET \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".utf8)
    guard send(descriptor, request, request.count, Int32(MSG_NOSIGNAL)) == request.count
    else { throw Failure(description: "the service did not accept the request") }
    var answer = [UInt8](repeating: 0, count: 64)
    let count = recv(descriptor, &answer, answer.count, Int32(MSG_WAITALL))
    let status = String(decoding: answer.prefix(max(0, count)), as: UTF8.self)
      .prefix { $0 != "\r\n" }
    guard status.hasPrefix("HTTP/1.1 200") else {
      throw Failure(description: "the service responded with \"\(status)\"")
    }
  }

  private static func connect(to server: HTTPServer.Configuration) throws(Failure) -> Int32 {
    var hints = addrinfo()
    hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    var found: UnsafeMutablePointer<addrinfo>?
    // A service that listens on all addresses also listens on loopback.
    let host = ["0.0.0.0": "127.0.0.1", "::": "::1"][server.host] ?? server.host
    guard getaddrinfo(host, String(server.port), &hints, &found) == 0, let address = found else {
      throw Failure(description: "\(host) is not an address")
    }
    defer { freeaddrinfo(found) }
    let descriptor = socket(address.pointee.ai_family, Int32(SOCK_STREAM.rawValue), 0)
    var patience = timeval(tv_sec: 2, tv_usec: 0)
    let size = socklen_t(MemoryLayout<timeval>.size)
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, size)
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, size)
    guard Glibc.connect(descriptor, address.pointee.ai_addr, address.pointee.ai_addrlen) == 0 else {
      let reason = String(cString: strerror(errno))
      close(descriptor)
      throw Failure(description: "\(host) port \(server.port): \(reason)")
    }
    return descriptor
  }
}
