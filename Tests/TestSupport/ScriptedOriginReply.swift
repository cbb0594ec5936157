/// The steps that a ``ScriptedOrigin`` carries out for one request. The connection then takes the next request or is closed.
package struct ScriptedReply: Sendable {
  /// One step on the connection.
  package enum Step: Sendable {
    /// Sends bytes.
    case send([UInt8])
    /// Sends bytes in pieces of `size`, with a pause after each.
    case drip([UInt8], size: Int, every: Duration)
    /// Sends the bytes repeatedly until the client closes.
    case repeating([UInt8])
    /// Waits for a while, or until the client closes.
    case pause(Duration)
    /// Waits until the gate is open or the client closes.
    case hold(Gate)
    /// Waits until the client closes.
    case waitForClose
    /// Closes the connection in an orderly way.
    case close
    /// Resets the connection.
    case reset
  }

  /// The steps.
  package var steps: [Step]

  /// A reply with these steps. Without `.close` at the end the connection accepts another request.
  package init(_ steps: [Step]) { self.steps = steps }

  /// A reply with these steps. Without `.close` at the end the connection accepts another request.
  package init(_ steps: Step...) { self.steps = steps }
}

// Correct responses.
extension ScriptedReply {
  /// Status 200 with `Content-Length` and the body.
  package static func ok(
    _ body: [UInt8], type: String = "image/png", headers: [(String, String)] = []
  ) -> Self {
    .status(200, headers: [("Content-Type", type)] + headers, body: body)
  }

  /// Status 200 with the body. Only `count` bytes of it are sent before the gate is open.
  package static func held(
    _ body: [UInt8], after count: Int = 0, by gate: Gate, headers: [(String, String)] = []
  ) -> Self {
    let head = head(200, headers + [("Content-Length", "\(body.count)")])
    // Hold the header section too if no byte of the body may be sent.
    if count == 0 { return Self(.hold(gate), .send(head + body)) }
    return Self(.send(head + body.prefix(count)), .hold(gate), .send(Array(body.dropFirst(count))))
  }

  /// Any status, with `Content-Length` and the body.
  package static func status(
    _ status: Int, headers: [(String, String)] = [], body: [UInt8] = []
  ) -> Self {
    let length = status == 204 || status == 304 ? [] : [("Content-Length", "\(body.count)")]
    return Self(.send(head(status, headers + length) + body))
  }

  /// Status 200 with a complete body in chunks.
  package static func chunked(_ chunks: [[UInt8]]) -> Self {
    let framed = chunks.filter { !$0.isEmpty }.map(chunk).joined()
    return Self(.send(head(200, [("Transfer-Encoding", "chunked")]) + framed + chunk([])))
  }

  /// A redirect.
  package static func redirect(to location: String, status: Int = 302) -> Self {
    .status(status, headers: [("Location", location)])
  }
}

// Incorrect responses.
extension ScriptedReply {
  /// Announces the whole body, sends `count` bytes of it and closes.
  package static func truncated(_ body: [UInt8], after count: Int) -> Self {
    .lying(length: body.count, body: Array(body.prefix(count)))
  }

  /// Announces a wrong `Content-Length`, sends the body and closes.
  package static func lying(length: Int, body: [UInt8]) -> Self {
    Self(.send(head(200, [("Content-Length", "\(length)")]) + body), .close)
  }

  /// Sends `count` bytes of the body, then nothing until the client closes.
  package static func stalled(_ body: [UInt8], after count: Int) -> Self {
    let header = head(200, [("Content-Length", "\(body.count)")])
    return Self(.send(header + body.prefix(count)), .waitForClose)
  }

  /// Sends the body in pieces, with a pause after each.
  package static func dripped(_ body: [UInt8], size: Int, every pause: Duration) -> Self {
    Self(
      .send(head(200, [("Content-Length", "\(body.count)")])),
      .drip(body, size: size, every: pause))
  }

  /// A body of unknown length that never ends.
  package static func endless(_ bytes: [UInt8] = [UInt8](repeating: 0x61, count: 65_536)) -> Self {
    Self(.send(head(200, [("Connection", "close")])), .repeating(bytes))
  }

  /// Some chunks, then a chunk size that is not a number, then the end.
  package static func brokenChunks(_ chunks: [[UInt8]]) -> Self {
    let framed = chunks.map(chunk).joined()
    let header = head(200, [("Transfer-Encoding", "chunked")])
    return Self(.send(header + framed + Array("zz\r\n".utf8)), .close)
  }

  /// Sends `count` bytes of the body, then a TCP reset.
  package static func resetting(_ body: [UInt8], after count: Int) -> Self {
    let header = head(200, [("Content-Length", "\(body.count)")])
    // The pause gives the client time to read: a reset discards the bytes that wait in the client's
    // kernel.
    return Self(.send(header + body.prefix(count)), .pause(.milliseconds(100)), .reset)
  }

  /// Accepts the request and never answers.
  package static var silent: Self { Self(.waitForClose) }

  /// Accepts the request and closes.
  package static var closed: Self { Self(.close) }

  /// Raw bytes, then the end of the connection.
  package static func raw(_ text: String) -> Self { Self(.send(Array(text.utf8)), .close) }

  /// Status 200 with a header section of at least this many bytes.
  package static func hugeHeader(bytes: Int) -> Self {
    let value = String(repeating: "x", count: 1_000)
    let fields = (0...bytes / 1_000).map { ("X-Padding-\($0)", value) }
    return .status(200, headers: fields, body: Array("body".utf8))
  }

  /// Interim responses before the final one.
  package static func interim(_ status: Int, times: Int = 1, then reply: Self) -> Self {
    let interim = Array("HTTP/1.1 \(status) Interim\r\nX-Interim: yes\r\n\r\n".utf8)
    return Self([.send(Array((0..<times).map { _ in interim }.joined()))] + reply.steps)
  }

  /// A pause before the first byte.
  package func delayed(by pause: Duration) -> Self { Self([.pause(pause)] + steps) }

  /// A status line and header section.
  package static func head(_ status: Int, _ headers: [(String, String)]) -> [UInt8] {
    let lines = headers.map { "\($0): \($1)\r\n" }.joined()
    return Array("HTTP/1.1 \(status) Scripted\r\n\(lines)\r\n".utf8)
  }

  /// One chunk of the chunked coding; an empty one is the last.
  package static func chunk(_ bytes: [UInt8]) -> [UInt8] {
    Array("\(String(bytes.count, radix: 16))\r\n".utf8) + bytes + Array("\r\n".utf8)
  }
}
