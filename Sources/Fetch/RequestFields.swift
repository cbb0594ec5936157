internal import Jobs

/// The last check of header fields before they are sent. The API has already refused the fields that are
/// dropped here.
enum RequestFields {
  /// Returns the client's fields that may be sent. Conditional fields and `Range` are dropped: only the
  /// fetcher's caller can handle a 206 or a 304.
  static func permitted(_ fields: [HeaderField]) -> [HeaderField] {
    fields.filter { field in
      let name = field.name.lowercased()
      return !refused.contains(name) && !conditional.contains(name) && isSound(field)
    }
  }

  /// Returns the fetch's own conditional fields for this URL.
  static func conditions(_ all: [FetchConditions], for url: SourceURL) -> [HeaderField] {
    sound(all.filter { $0.url == url }.flatMap(\.fields))
  }

  /// Returns the fields that are conditional and well-formed.
  static func sound(_ conditions: [HeaderField]) -> [HeaderField] {
    conditions.filter { conditional.contains($0.name.lowercased()) && isSound($0) }
  }

  /// Returns the fields that are well-formed.
  static func sendable(_ fields: [HeaderField]) -> [HeaderField] { fields.filter(isSound) }

  private static func isSound(_ field: HeaderField) -> Bool {
    isToken(field.name)
      && !field.value.utf8.contains(where: { $0 < 0x20 && $0 != 0x09 || $0 == 0x7F })
  }

  /// Whether a field with this lower-case name is present.
  static func contain(_ name: String, in fields: [HeaderField]) -> Bool {
    fields.contains { $0.name.lowercased() == name }
  }

  /// Fields that belong to the connection or to the message framing, which libcurl controls. Content codings
  /// are refused, because images are requested without one.
  private static let refused: Set<String> = [
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive",
    "proxy-authenticate",
    "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    "http2-settings",
  ]

  /// The conditional fields of RFC 9110 sections 13.1 and 14.2.
  private static let conditional: Set<String> = [
    "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range",
  ]

  /// Whether a name is a token of RFC 9110 section 5.6.2.
  private static func isToken(_ name: String) -> Bool {
    !name.isEmpty
      && name.utf8.allSatisfy { byte in
        0x30...0x39 ~= byte || 0x61...0x7A ~= byte | 0x20 && byte >= 0x41
          || "!#$%&'*+-.^_`|~".utf8.contains(byte)
      }
  }
}
