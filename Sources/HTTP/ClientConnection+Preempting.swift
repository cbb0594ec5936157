internal import CMicroHTTPD
import Glibc
import HTTPTypes

/// Sends a problem document before libmicrohttpd sends its own HTML error page.
///
/// The library itself refuses some complete heads, for example because of their Content-Length. It then does
/// not call the request handler, and no option changes the page. But it first logs a message on the
/// connection's thread. At that moment this connection is the only one of its thread whose head is complete
/// and has not reached the handler.
///
/// Two cases keep the HTML: heads that the library refuses before they are complete, and broken chunks.
/// Several connections of the thread may be in that state, and the message does not name one.
extension Monitor {
  /// Handles the message that libmicrohttpd logs before it refuses a request.
  func preempt(_ message: String) {
    service.connections.first { $0.awaitsHandler }?.preempt(message)
  }

  /// The prefix of that message in every tested release. If it changes, clients receive the library's HTML.
  static let preemptible = "Error processing request"
}

extension ClientConnection {
  /// Whether the connection's head is complete and was not passed to the handler. False on other threads than
  /// its own.
  fileprivate var awaitsHandler: Bool {
    guard pthread_equal(thread, pthread_self()) != 0 else { return false }
    return step == .head && sentTarget != nil && CMicroHTTPD_headerSize(handle) > 0
  }

  /// Sends the response and shuts down the sending side, so that libmicrohttpd's own page is not sent. With
  /// TLS only the library can write; the connection is then closed without a response.
  fileprivate func preempt(_ message: String) {
    step = .answered
    guard service.configuration.tls == nil else {
      _ = shutdown(descriptor, Int32(SHUT_RDWR))
      return
    }
    let bytes = response(to: refusal(of: message)).encoded(at: time(nil))
    // The socket buffer has space for this, unless the client did not read earlier responses.
    _ = bytes.withUnsafeBytes {
      send(
        descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
    }
    lingers = true
    _ = shutdown(descriptor, Int32(SHUT_WR))
  }

  /// Determines the reason from the head with the rules of `FieldReader`, which cover everything that the
  /// library refuses. The message is used only for facts that the API does not report.
  private func refusal(of message: String) -> Refusal {
    // The cookies, which the library copies, do not fit into the connection's memory pool.
    if message.contains("Request too big") {
      return .headerTooLarge(limit: service.configuration.maxHeader)
    }
    let reader = FieldReader(handle, service.configuration)
    return reader.refusal ?? reader.framingFault(isOld: message.contains("HTTP/1.0"))
      ?? .malformed(detail: "the HTTP library cannot read the request head")
  }
}

extension Response {
  /// Encodes a response whose content is in memory, with `Connection: close` (RFC 9112).
  func encoded(at moment: time_t) -> [UInt8] {
    var content: [UInt8] = []
    if case .bytes(let bytes) = self.content { content = bytes }
    var head = "HTTP/1.1 \(status.code) \(status.reasonPhrase)\r\n"
    for field in fields { head += "\(field.name.rawName): \(field.value)\r\n" }
    head += "Date: \(Self.date(moment))\r\nConnection: close\r\n"
    head += "Content-Length: \(content.count)\r\n\r\n"
    return Array(head.utf8) + content
  }

  /// Formats an HTTP date (RFC 9110 section 5.6.7).
  private static func date(_ moment: time_t) -> String {
    var (moment, parts) = (moment, tm())
    gmtime_r(&moment, &parts)
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { buffer in
      strftime(buffer.baseAddress!, buffer.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
      return String(cString: buffer.baseAddress!)
    }
  }
}
