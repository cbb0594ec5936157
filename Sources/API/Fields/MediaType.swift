internal import HTTP

/// A media type (RFC 9110 section 8.3.1).
struct MediaType: Equatable, Sendable {
  /// `type/subtype`, lower case.
  let essence: String
  private let parameters: [(name: String, value: String)]

  /// Parses a `Content-Type`; nil if it is missing or malformed.
  init?(_ text: String?) {
    guard let text, text.utf8.count <= 512 else { return nil }
    var rest = text.utf8[...]
    let type = Self.token(&rest)
    guard rest.popFirst() == UInt8(ascii: "/") else { return nil }
    let subtype = Self.token(&rest)
    guard !type.isEmpty, !subtype.isEmpty, type.utf8.count + subtype.utf8.count <= 126,
      let parameters = Self.parameters(&rest)
    else { return nil }
    essence = "\(type)/\(subtype)".lowercased()
    self.parameters = parameters
  }

  static func == (a: MediaType, b: MediaType) -> Bool {
    a.essence == b.essence && a.parameters.elementsEqual(b.parameters, by: ==)
  }

  /// Returns the value of the parameter, or nil.
  func parameter(_ name: String) -> String? {
    parameters.first { $0.name == name }?.value
  }

  /// Whether the body can be an image.
  var isImage: Bool { essence.hasPrefix("image/") || essence == "application/octet-stream" }

  typealias Bytes = Substring.UTF8View

  /// Parses `;name=value` and `;name="value"`, with white space around the semicolon; nil if anything else follows.
  static func parameters(_ rest: inout Bytes) -> [(name: String, value: String)]? {
    var found: [(name: String, value: String)] = []
    skipSpace(&rest)
    while rest.popFirst() == UInt8(ascii: ";") {
      skipSpace(&rest)
      if rest.isEmpty || rest.first == UInt8(ascii: ";") { continue }
      let name = token(&rest).lowercased()
      guard !name.isEmpty, rest.popFirst() == UInt8(ascii: "=") else { return nil }
      guard let value = rest.first == UInt8(ascii: "\"") ? quoted(&rest) : token(&rest) else {
        return nil
      }
      guard !found.contains(where: { $0.name == name }) else { return nil }
      found.append((name, value))
      skipSpace(&rest)
    }
    return rest.isEmpty ? found : nil
  }

  static func token(_ rest: inout Bytes) -> String {
    let token = rest.prefix { $0.isTokenCharacter }
    rest = rest[token.endIndex...]
    return String(Substring(token))
  }

  /// Parses the quoted string at the start of the text; nil if its closing quote is missing.
  static func quoted(_ rest: inout Bytes) -> String? {
    rest.removeFirst()
    var value: [UInt8] = []
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "\"") { return String(validating: value, as: UTF8.self) }
      guard byte == UInt8(ascii: "\\") else { value.append(byte); continue }
      guard let escaped = rest.popFirst() else { return nil }
      value.append(escaped)
    }
    return nil
  }

  static func skipSpace(_ rest: inout Bytes) {
    while rest.first == 0x20 || rest.first == 0x09 { rest.removeFirst() }
  }
}
