/// What a ``ScriptedOrigin`` does with one request: steps in order, then the next request or the
/// end.
public struct ScriptedReply: Sendable {
  /// One thing done on the connection.
  public enum Step: Sendable {
    /// Sends bytes.
    case send([UInt8])
    /// Sends bytes in pieces of `size`, a pause after each.
    case drip([UInt8], size: Int, every: Duration)
    /// Sends the bytes again and again until the client closes.
    case repeating([UInt8])
    /// Does nothing for a while, or until the client closes.
    case pause(Duration)
    /// Does nothing until the gate is open, or until the client closes.
    case hold(Gate)
    /// Does nothing until the client closes.
    case waitForClose
    /// Closes in an orderly way.
    case close
    /// Closes with a TCP reset.
    case reset
  }

  /// What is done.
  public var steps: [Step]

  /// Those steps; without `.close` at their end the connection takes another request.
  public init(_ steps: [Step]) { self.steps = steps }

  /// Those steps; without `.close` at their end the connection takes another request.
  public init(_ steps: Step...) { self.steps = steps }
}

// Whole responses.
extension ScriptedReply {
  /// Status 200 with `Content-Length` and the body.
  public static func ok(
    _ body: [UInt8], type: String = "image/png", headers: [(String, String)] = []
  ) -> Self {
    .status(200, headers: [("Content-Type", type)] + headers, body: body)
  }

  /// Status 200 with the body, of which nothing but `count` bytes comes before the gate is open.
  public static func held(
    _ body: [UInt8], after count: Int = 0, by gate: Gate, headers: [(String, String)] = []
  ) -> Self {
    let head = head(200, headers + [("Content-Length", "\(body.count)")])
    // Before its first byte an answer's head isn't worth anything either.
    if count == 0 { return Self(.hold(gate), .send(head + body)) }
    return Self(.send(head + body.prefix(count)), .hold(gate), .send(Array(body.dropFirst(count))))
  }

  /// Any status, with `Content-Length` and the body.
  public static func status(
    _ status: Int, headers: [(String, String)] = [], body: [UInt8] = []
  ) -> Self {
    let length = status == 204 || status == 304 ? [] : [("Content-Length", "\(body.count)")]
    return Self(.send(head(status, headers + length) + body))
  }

  /// Status 200 in chunks, whole.
  public static func chunked(_ chunks: [[UInt8]]) -> Self {
    let framed = chunks.filter { !$0.isEmpty }.map(chunk).joined()
    return Self(.send(head(200, [("Transfer-Encoding", "chunked")]) + framed + chunk([])))
  }

  /// A redirect.
  public static func redirect(to location: String, status: Int = 302) -> Self {
    .status(status, headers: [("Location", location)])
  }
}

// Responses that misbehave.
extension ScriptedReply {
  /// Promises the whole body, sends `count` bytes of it and closes.
  public static func truncated(_ body: [UInt8], after count: Int) -> Self {
    .lying(length: body.count, body: Array(body.prefix(count)))
  }

  /// Says another `Content-Length` than the body has, sends the body and closes.
  public static func lying(length: Int, body: [UInt8]) -> Self {
    Self(.send(head(200, [("Content-Length", "\(length)")]) + body), .close)
  }

  /// Sends `count` bytes of the body and nothing more until the client closes.
  public static func stalled(_ body: [UInt8], after count: Int) -> Self {
    let header = head(200, [("Content-Length", "\(body.count)")])
    return Self(.send(header + body.prefix(count)), .waitForClose)
  }

  /// Sends the body in pieces with a pause after each.
  public static func dripped(_ body: [UInt8], size: Int, every pause: Duration) -> Self {
    Self(
      .send(head(200, [("Content-Length", "\(body.count)")])),
      .drip(body, size: size, every: pause))
  }

  /// A body without a length that never ends.
  public static func endless(_ bytes: [UInt8] = [UInt8](repeating: 0x61, count: 65_536)) -> Self {
    Self(.send(head(200, [("Connection", "close")])), .repeating(bytes))
  }

  /// Some chunks, then a chunk's size that is no number, and the end.
  public static func brokenChunks(_ chunks: [[UInt8]]) -> Self {
    let framed = chunks.map(chunk).joined()
    let header = head(200, [("Transfer-Encoding", "chunked")])
    return Self(.send(header + framed + Array("zz\r\n".utf8)), .close)
  }

  /// Sends `count` bytes of the body, then a TCP reset.
  public static func resetting(_ body: [UInt8], after count: Int) -> Self {
    let header = head(200, [("Content-Length", "\(body.count)")])
    // The pause lets the bytes be read: a reset throws away what still waits in the client's
    // kernel.
    return Self(.send(header + body.prefix(count)), .pause(.milliseconds(100)), .reset)
  }

  /// Takes the request and never answers.
  public static var silent: Self { Self(.waitForClose) }

  /// Takes the request and closes.
  public static var closed: Self { Self(.close) }

  /// Bytes as they are, then the end.
  public static func raw(_ text: String) -> Self { Self(.send(Array(text.utf8)), .close) }

  /// Status 200 with a header section of at least that many bytes.
  public static func hugeHeader(bytes: Int) -> Self {
    let value = String(repeating: "x", count: 1_000)
    let fields = (0...bytes / 1_000).map { ("X-Padding-\($0)", value) }
    return .status(200, headers: fields, body: Array("body".utf8))
  }

  /// Interim responses before the real one.
  public static func interim(_ status: Int, times: Int = 1, then reply: Self) -> Self {
    let interim = Array("HTTP/1.1 \(status) Interim\r\nX-Interim: yes\r\n\r\n".utf8)
    return Self([.send(Array((0..<times).map { _ in interim }.joined()))] + reply.steps)
  }

  /// A pause before anything is sent.
  public func delayed(by pause: Duration) -> Self { Self([.pause(pause)] + steps) }

  /// A status line and header section.
  public static func head(_ status: Int, _ headers: [(String, String)]) -> [UInt8] {
    let lines = headers.map { "\($0): \($1)\r\n" }.joined()
    return Array("HTTP/1.1 \(status) Scripted\r\n\(lines)\r\n".utf8)
  }

  /// One chunk of the chunked coding; an empty one is the last.
  public static func chunk(_ bytes: [UInt8]) -> [UInt8] {
    Array("\(String(bytes.count, radix: 16))\r\n".utf8) + bytes + Array("\r\n".utf8)
  }
}
