/// An image as an honest origin has it: asked for in whole or, with a validator, in part.
public struct Representation: Sendable {
  /// All of it.
  public var body: [UInt8]
  /// What is said with it: `ETag`, `Last-Modified`, `Date` and others.
  public var headers: [(String, String)]

  /// A body and its header fields.
  public init(_ body: [UInt8], headers: [(String, String)] = []) {
    self.body = body
    self.headers = headers
  }

  /// A body with an entity tag.
  public init(_ body: [UInt8], etag: String) { self.init(body, headers: [("ETag", etag)]) }

  /// The whole, or the part that was asked for where `If-Range` names this one.
  public func reply(to request: ScriptedRequest) -> ScriptedReply {
    let start = start(for: request)
    return ScriptedReply(.send(head(from: start) + body[start...]))
  }

  /// The same, cut off where the whole would have so many bytes.
  public func reply(to request: ScriptedRequest, breakingAt end: Int) -> ScriptedReply {
    let start = start(for: request)
    return ScriptedReply(.send(head(from: start) + body[start..<max(start, end)]), .close)
  }

  /// The same, held back where the whole would have so many bytes.
  public func reply(
    to request: ScriptedRequest, holdingAt end: Int, for gate: Gate
  ) -> ScriptedReply {
    let start = start(for: request)
    let end = max(start, end)
    return ScriptedReply(
      .send(head(from: start) + body[start..<end]), .hold(gate), .send(Array(body[end...])))
  }

  /// A 206 with a `Content-Range` of one's own, sent as if it were right.
  public func part(from start: Int, contentRange: String) -> ScriptedReply {
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
