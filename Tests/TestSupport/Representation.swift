/// An image as a well-behaved origin serves it: completely or, with a validator, in part.
package struct Representation: Sendable {
  /// The complete body.
  package var body: [UInt8]
  /// Header fields such as `ETag`, `Last-Modified` and `Date`.
  package var headers: [(String, String)]

  /// A body and its header fields.
  package init(_ body: [UInt8], headers: [(String, String)] = []) {
    self.body = body
    self.headers = headers
  }

  /// A body with an entity tag.
  package init(_ body: [UInt8], etag: String) { self.init(body, headers: [("ETag", etag)]) }

  /// The complete response, or the requested part if `If-Range` names this representation.
  package func reply(to request: ScriptedRequest) -> ScriptedReply {
    let start = start(for: request)
    return ScriptedReply(.send(head(from: start) + body[start...]))
  }

  /// The same response, cut off at this offset of the complete body.
  package func reply(to request: ScriptedRequest, breakingAt end: Int) -> ScriptedReply {
    let start = start(for: request)
    return ScriptedReply(.send(head(from: start) + body[start..<max(start, end)]), .close)
  }

  /// The same response, held back at this offset of the complete body.
  package func reply(
    to request: ScriptedRequest, holdingAt end: Int, for gate: Gate
  ) -> ScriptedReply {
    let start = start(for: request)
    let end = max(start, end)
    return ScriptedReply(
      .send(head(from: start) + body[start..<end]), .hold(gate), .send(Array(body[end...])))
  }

  /// A 206 with any `Content-Range`, sent as if it were correct.
  package func part(from start: Int, contentRange: String) -> ScriptedReply {
    .status(206, headers: headers + [("Content-Range", contentRange)], body: Array(body[start...]))
  }

  private func start(for request: ScriptedRequest) -> Int {
    guard let range = request.header("Range"), range.hasPrefix("bytes="), range.hasSuffix("-"),
      let start = Int(range.dropFirst(6).dropLast()), start < body.count,
      let condition = request.header("If-Range"),
      headers.contains(where: { ["ETag", "Last-Modified"].contains($0.0) && $0.1 == condition })
    else { return 0 }
    return start
  }

  private func head(from start: Int) -> [UInt8] {
    let length = ("Content-Length", "\(body.count - start)")
    guard start > 0 else { return ScriptedReply.head(200, headers + [length]) }
    let range = ("Content-Range", "bytes \(start)-\(body.count - 1)/\(body.count)")
    return ScriptedReply.head(206, headers + [length, range])
  }
}
