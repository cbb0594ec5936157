internal import Glibc
internal import HTTP
internal import HTTPTypes

/// Finds the client behind trusted proxies: the last address on the request's way that is not a trusted proxy.
struct TrustedProxies: Sendable {
  /// Whether an address belongs to a trusted proxy.
  let isTrusted: @Sendable (String) -> Bool

  /// The address of the client. If the connection comes from a trusted proxy, `Forwarded` (RFC 7239) or
  /// `X-Forwarded-For` name it.
  ///
  /// A proxy usually writes one of the two fields and passes on the other as the client sent it. So if the two name
  /// different clients, neither can be trusted, and the request counts as the proxy's own.
  func client(of request: Request) -> String {
    let proxy = request.remoteAddress
    guard isTrusted(proxy) else { return proxy }
    let told = [Self.forwarded(request.fields), Self.forwardedFor(request.fields)]
      .compactMap { hops in hops.map { client(behind: proxy, along: $0) } }
    guard let first = told.first, told.allSatisfy({ $0 == first }) else { return proxy }
    return first
  }

  private func client(behind proxy: String, along hops: [Substring]) -> String {
    var address = proxy
    for hop in hops.reversed() {
      // If the proxy hides the address or does not know it, the request counts as the proxy's own.
      guard isTrusted(address), let next = Self.address(hop) else { break }
      address = next
    }
    return address
  }

  /// The nodes of `Forwarded`, the client first; nil if the field is missing.
  private static func forwarded(_ fields: HTTPFields) -> [Substring]? {
    fields[.forwarded].map { field in
      split(field[...], at: ",").map { element in
        split(element, at: ";").lazy.map(trimmed).first { $0.prefix(4).lowercased() == "for=" }?
          .dropFirst(4) ?? ""
      }
    }
  }

  /// The nodes of `X-Forwarded-For`, the client first; nil if the field is missing.
  private static func forwardedFor(_ fields: HTTPFields) -> [Substring]? {
    fields[.xForwardedFor].map { $0.split(separator: ",").map(trimmed) }
  }

  /// Splits at a character that is not within a quoted string.
  private static func split(_ text: Substring, at separator: Character) -> [Substring] {
    var isQuoted = false
    return text.split(omittingEmptySubsequences: false) { character in
      if character == "\"" { isQuoted.toggle() }
      return character == separator && !isQuoted
    }
  }

  private static func trimmed(_ text: Substring) -> Substring {
    var text = text.drop { $0 == " " || $0 == "\t" }
    while text.last == " " || text.last == "\t" { text.removeLast() }
    return text
  }

  /// The address of a node without quotes and port; nil if it is not an address.
  private static func address(_ node: Substring) -> String? {
    var text = node
    if text.first == "\"", text.last == "\"", text.count > 1 { text = text.dropFirst().dropLast() }
    if text.first == "[" {
      text = text.dropFirst().prefix { $0 != "]" }
    } else if text.count(where: { $0 == ":" }) == 1 {
      text = text.prefix { $0 != ":" }
    }
    let address = String(text)
    var bytes = in6_addr()
    let isAddress =
      inet_pton(AF_INET, address, &bytes) == 1 || inet_pton(AF_INET6, address, &bytes) == 1
    return isAddress ? address : nil
  }
}
