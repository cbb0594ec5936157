internal import Jobs

/// The last look at header fields before they are sent: the edge has refused what is dropped here.
enum RequestFields {
  /// The client's fields. What makes a request conditional isn't among them: whoever asks for a part or a 304 must
  /// know what to do with it.
  static func permitted(_ fields: [HeaderField]) -> [HeaderField] {
    fields.filter { field in
      let name = field.name.lowercased()
      return !refused.contains(name) && !conditional.contains(name) && isSound(field)
    }
  }

  /// The fetch's own conditions and range, as far as they are about that URL.
  static func conditions(_ all: [FetchConditions], for url: SourceURL) -> [HeaderField] {
    sound(all.filter { $0.url == url }.flatMap(\.fields))
  }

  /// Those among the fetch's own fields that are conditions.
  static func sound(_ conditions: [HeaderField]) -> [HeaderField] {
    conditions.filter { conditional.contains($0.name.lowercased()) && isSound($0) }
  }

  /// Those that can be sent at all.
  static func sendable(_ fields: [HeaderField]) -> [HeaderField] { fields.filter(isSound) }

  private static func isSound(_ field: HeaderField) -> Bool {
    isToken(field.name)
      && !field.value.utf8.contains(where: { $0 < 0x20 && $0 != 0x09 || $0 == 0x7F })
  }

  /// Whether a field of that name is among them.
  static func contain(_ name: String, in fields: [HeaderField]) -> Bool {
    fields.contains { $0.name.lowercased() == name }
  }

  /// What belongs to the connection or to the message's framing, and so to libcurl alone; and content codings: an image
  /// is asked for as it is.
  private static let refused: Set<String> = [
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive",
    "proxy-authenticate",
    "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    "http2-settings",
  ]

  /// RFC 9110 sections 13.1 and 14.2.
  private static let conditional: Set<String> = [
    "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range",
  ]

  /// RFC 9110 section 5.6.2.
  private static func isToken(_ name: String) -> Bool {
    !name.isEmpty
      && name.utf8.allSatisfy { byte in
        0x30...0x39 ~= byte || 0x61...0x7A ~= byte | 0x20 && byte >= 0x41
          || "!#$%&'*+-.^_`|~".utf8.contains(byte)
      }
  }
}
