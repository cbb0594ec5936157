internal import CMicroHTTPD
import Glibc
import HTTPTypes

/// Sends a problem document before libmicrohttpd sends HTML.
///
/// The library itself refuses some heads once they are complete, for example because of their Content-Length. No option
/// sets that answer, and the request handler is not called. But the library first logs a message, on the thread of the
/// connection. At that moment the connection is the only one of its thread whose head is complete and has not reached the
/// handler. Heads that the library refuses before they are complete, and broken chunks, keep its HTML: several
/// connections of the thread may be at that point, and the message does not name one.
extension Monitor {
  /// libmicrohttpd is about to refuse a request.
  func preempt(_ message: String) {
    service.connections.first { $0.isUnasked }?.preempt(message)
  }

  /// How that message begins, in every release that was tested. If it changes, clients get the library's HTML.
  static let preemptible = "Error processing request"
}

extension Connection {
  /// Whether its head is complete and was not passed to the handler. False on another thread than its own.
  fileprivate var isUnasked: Bool {
    guard pthread_equal(thread, pthread_self()) != 0 else { return false }
    return step == .head && sentTarget != nil && CMicroHTTPD_headerSize(handle) > 0
  }

  /// Sends our answer and shuts down the connection's sending side before libmicrohttpd's answer. Over TLS, where only
  /// the library can write, the connection is closed without an answer.
  fileprivate func preempt(_ message: String) {
    step = .answered
    guard service.configuration.tls == nil else {
      _ = shutdown(descriptor, Int32(SHUT_RDWR))
      return
    }
    let bytes = response(to: refusal(of: message)).encoded(at: time(nil))
    // The kernel has space for so few bytes, unless the client did not read the answers before.
    _ = bytes.withUnsafeBytes {
      send(
        descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
    }
    lingers = true
    _ = shutdown(descriptor, Int32(SHUT_WR))
  }

  /// Finds the reason by our own rules, which cover everything that the library refuses. The message is used only for facts
  /// that the API does not report.
  private func refusal(of message: String) -> Refusal {
    // The cookies, which the library copies, do not fit into the connection's memory.
    if message.contains("Request too big") {
      return .headerTooLarge(limit: service.configuration.maxHeader)
    }
    let reader = FieldReader(handle, service.configuration)
    return reader.refusal ?? reader.framingFault(isOld: message.contains("HTTP/1.0"))
      ?? .malformed(detail: "the HTTP library cannot read the request head")
  }
}

extension Response {
  /// The message of an answer that is in memory, after which the connection is closed (RFC 9112).
  func encoded(at moment: time_t) -> [UInt8] {
    var content: [UInt8] = []
    if case .bytes(let bytes) = self.content { content = bytes }
    var head = "HTTP/1.1 \(status.code) \(status.reasonPhrase)\r\n"
    for field in fields { head += "\(field.name.rawName): \(field.value)\r\n" }
    head += "Date: \(Self.date(moment))\r\nConnection: close\r\n"
    head += "Content-Length: \(content.count)\r\n\r\n"
    return Array(head.utf8) + content
  }

  /// RFC 9110 section 5.6.7.
  private static func date(_ moment: time_t) -> String {
    var (moment, parts) = (moment, tm())
    gmtime_r(&moment, &parts)
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { buffer in
      strftime(buffer.baseAddress!, buffer.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
      return String(cString: buffer.baseAddress!)
    }
  }
}
