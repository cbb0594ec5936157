internal import CMicroHTTPD
import Glibc
import HTTPTypes

/// Answering before libmicrohttpd does.
///
/// A head that it finds faulty once it is whole, as by its Content-Length, it answers by two heads and HTML, and never
/// shows us. But it says so in its log first, on the thread of the connection, which is then the only one there whose
/// head is whole and that has not asked for its handler yet.
extension Monitor {
  /// libmicrohttpd is about to answer a request by itself.
  func preempt(_ message: String) {
    let connection = service.connections.first { $0.isUnasked }
    connection?.preempt(Refusal(ofMessage: message, service.configuration))
  }

  /// How its message begins.
  static let preemptible = "Error processing request"
}

extension Refusal {
  /// What libmicrohttpd found wrong; its message tells the status that it would answer with.
  init(ofMessage message: String, _ limits: HTTPServer.Configuration) {
    if message.contains("is 413") {
      self = .bodyTooLarge(limit: limits.maxBody)
    } else if message.contains("is 431") {
      self = .headerTooLarge(limit: limits.maxHeader)
    } else {
      self = .malformed(detail: "Content-Length is not a number")
    }
  }
}

extension Connection {
  /// Whether its head is whole and nothing was asked about it. False on another thread than its own.
  fileprivate var isUnasked: Bool {
    guard pthread_equal(thread, pthread_self()) != 0 else { return false }
    return step == .head && line != nil && CMicroHTTPD_headerSize(handle) > 0
  }

  /// Sends our words, and ends the client's reading before libmicrohttpd's. Over TLS, where nobody else may write, the
  /// connection is just closed.
  fileprivate func preempt(_ refusal: Refusal) {
    guard service.configuration.tls == nil else {
      _ = shutdown(descriptor, Int32(SHUT_RDWR))
      return
    }
    let bytes = service.refusal(refusal, nil).encoded(at: time(nil))
    // As little as this finds room in the kernel, unless answers before it were not read.
    _ = bytes.withUnsafeBytes {
      send(
        descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
    }
    lingers = true
    _ = shutdown(descriptor, Int32(SHUT_WR))
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
