/// An absolute http or https URL whose parts are unambiguous (RFC 3986). The code that checks a URL and the
/// code that connects to it therefore read it the same way.
///
/// Like the WHATWG URL parser, it trims spaces at both ends, percent-encodes characters that a path or query
/// may not contain, and drops the fragment. Unlike that parser, it rejects backslashes, tabs, line breaks and
/// `user:password@`, because URL parsers disagree about them.
package struct SourceURL: Hashable, Sendable {
  /// `http` or `https`.
  package let scheme: String
  /// A name or address in lower case, as given; an IPv6 address without its brackets.
  package let host: String
  /// The given port, or the default port of the scheme.
  package let port: Int
  /// Path and query, starting with `/`, percent-encoded.
  package let pathAndQuery: String

  /// The maximum length in bytes, before and after percent-encoding.
  package static let maxLength = 8_192

  /// Parses a URL; nil if it cannot be fetched.
  package init?(_ text: String) {
    let trimmed = text.utf8.drop { $0 == 0x20 }
    var rest = trimmed[...]
    while rest.last == 0x20 { rest = rest.dropLast() }
    guard rest.count <= Self.maxLength, !rest.contains(where: Self.isForbidden),
      let colon = rest.firstIndex(of: UInt8(ascii: ":"))
    else { return nil }

    scheme = Self.lowercased(rest[..<colon])
    guard scheme == "http" || scheme == "https" else { return nil }
    rest = rest[rest.index(after: colon)...]
    guard rest.starts(with: [UInt8(ascii: "/"), UInt8(ascii: "/")]) else { return nil }
    rest = rest.dropFirst(2)

    let end =
      rest.firstIndex {
        $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?")
          || $0 == UInt8(ascii: "#")
      } ?? rest.endIndex
    guard let authority = Self.authority(rest[..<end]) else { return nil }
    host = authority.host
    port = authority.port ?? (scheme == "https" ? 443 : 80)

    let tail = rest[end...].prefix { $0 != UInt8(ascii: "#") }
    pathAndQuery = Self.encoded(tail)
    // The normalized URL must be parsable under the same limit.
    guard string.utf8.count <= Self.maxLength else { return nil }
  }

  /// The origin (RFC 6454): scheme, host and port, with the host as given.
  package var origin: String { origin(spelling: host) }

  /// The origin with another spelling of the host.
  package func origin(spelling host: String) -> String { "\(scheme)://\(authority(of: host))" }

  /// Whether the host is a name with only one spelling: ASCII, no dot at its end, and a last label that does
  /// not begin with a digit. IPv4 addresses end in a number in each of their forms.
  package var hasPlainHost: Bool {
    var isLabelsFirst = true
    var first: UInt8 = 0
    for byte in host.utf8 {
      guard byte < 0x80, byte != UInt8(ascii: ":") else { return false }
      if isLabelsFirst { first = byte }
      isLabelsFirst = byte == UInt8(ascii: ".")
    }
    return !isLabelsFirst && !(0x30...0x39 ~= first)
  }

  /// The complete URL.
  package var string: String { origin + pathAndQuery }

  /// The host, and the port unless it is the default of the scheme.
  package var authority: String { authority(of: host) }

  private func authority(of host: String) -> String {
    let bracketed = host.contains(":") ? "[\(host)]" : host
    return port == (scheme == "https" ? 443 : 80) ? bracketed : "\(bracketed):\(port)"
  }

  private typealias Bytes = Substring.UTF8View

  private static func isForbidden(_ byte: UInt8) -> Bool {
    byte < 0x20 || byte == 0x7F || byte == UInt8(ascii: "\\")
  }

  private static func lowercased(_ bytes: Bytes) -> String { Substring(bytes).lowercased() }

  private static func authority(_ bytes: Bytes) -> (host: String, port: Int?)? {
    guard !bytes.contains(UInt8(ascii: "@")) else { return nil }
    let hostEnd: Bytes.Index
    if bytes.first == UInt8(ascii: "[") {
      guard let close = bytes.firstIndex(of: UInt8(ascii: "]")) else { return nil }
      hostEnd = bytes.index(after: close)
    } else {
      hostEnd = bytes.firstIndex(of: UInt8(ascii: ":")) ?? bytes.endIndex
    }
    guard let port = port(bytes[hostEnd...]), let host = host(bytes[..<hostEnd]) else { return nil }
    return (host, port)
  }

  /// Returns `.some(nil)` if no port is given, and nil if it is invalid.
  private static func port(_ bytes: Bytes) -> Int?? {
    guard let first = bytes.first else { return .some(nil) }
    guard first == UInt8(ascii: ":") else { return nil }
    let digits = bytes.dropFirst()
    if digits.isEmpty { return .some(nil) }
    guard digits.count <= 5, digits.allSatisfy({ 0x30...0x39 ~= $0 }),
      let port = Int(String(Substring(digits))), 1...65_535 ~= port
    else { return nil }
    return port
  }

  private static func host(_ bytes: Bytes) -> String? {
    let name = lowercased(bytes)
    if name.hasPrefix("[") {
      let inner = name.dropFirst().dropLast()
      let legal = inner.utf8.allSatisfy {
        hexValue($0) != nil || $0 == UInt8(ascii: ":")
          || $0 == UInt8(ascii: ".")
      }
      return legal && inner.utf8.contains(UInt8(ascii: ":")) ? String(inner) : nil
    }
    // Non-ASCII letters stay. The fetcher converts internationalized names to ASCII.
    let legal = name.utf8.allSatisfy { byte in
      byte >= 0x80 || 0x30...0x39 ~= byte || 0x61...0x7A ~= byte || byte == UInt8(ascii: "-")
        || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "_")
    }
    return legal && !name.isEmpty && name.utf8.count <= 253 ? name : nil
  }

  private static func encoded(_ tail: Bytes) -> String {
    let query = tail.firstIndex(of: UInt8(ascii: "?")) ?? tail.endIndex
    var out: [UInt8] = tail.first == UInt8(ascii: "/") ? [] : [UInt8(ascii: "/")]
    for index in tail.indices {
      let byte = tail[index]
      if byte >= 0x80 || mustEncode(byte, inQuery: index >= query) {
        out += [UInt8(ascii: "%"), upperHex(byte >> 4), upperHex(byte & 15)]
      } else {
        out.append(byte)
      }
    }
    return String(decoding: out, as: UTF8.self)
  }

  private static func mustEncode(_ byte: UInt8, inQuery: Bool) -> Bool {
    switch byte {
    case UInt8(ascii: " "), UInt8(ascii: "\""), UInt8(ascii: "<"), UInt8(ascii: ">"): true
    case UInt8(ascii: "`"), UInt8(ascii: "{"), UInt8(ascii: "}"), UInt8(ascii: "^"),
      UInt8(ascii: "|"):
      true
    case UInt8(ascii: "'"): inQuery
    default: false
    }
  }

  private static func upperHex(_ value: UInt8) -> UInt8 {
    value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "A") + value - 10
  }
}

extension SourceURL: Codable {
  package init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    guard let url = try SourceURL(container.decode(String.self)) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a source URL")
    }
    self = url
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(string)
  }
}

/// Selects one of a submission's URLs.
package enum URLCandidate: Sendable, Hashable, Initial {
  /// The `url`.
  case regular
  /// The `low_data_url`, which replaces the `url`.
  case lowData
  /// One of the `alternatives`, by its index.
  case alternative(Int)

  /// The value for most jobs.
  package static let initial = URLCandidate.regular
}

extension Submission {
  /// Returns the selected URL; nil for other sources, and if the submission has no such URL.
  package func url(of target: URLCandidate) -> SourceURL? {
    guard case .url(let regular, let lowData) = source else { return nil }
    switch target {
    case .regular: return regular
    case .lowData: return lowData
    case .alternative(let place):
      return alternatives.indices.contains(place) ? alternatives[place] : nil
    }
  }
}

extension URLCandidate {
  /// Whether a try begins with it.
  var isFirst: Bool {
    switch self {
    case .regular, .lowData: true
    case .alternative: false
    }
  }

  /// Returns the URL to try after this one failed; nil after the last.
  package func next(in submission: Submission) -> URLCandidate? {
    let place =
      switch self {
      case .regular, .lowData: 0
      case .alternative(let place): place + 1
      }
    return submission.alternatives.indices.contains(place) ? .alternative(place) : nil
  }
}
