internal import Glibc
internal import HTTP
internal import HTTPTypes

/// Finds the client behind proxies that may say who it is: the last address on a request's way which is none of theirs.
struct TrustedProxies: Sendable {
  /// Whether an address is a proxy's whose word counts.
  let isTrusted: @Sendable (String) -> Bool

  /// Where a request comes from: as the connection has it, or, where that is a trusted proxy's, as `Forwarded`
  /// (RFC 7239) or `X-Forwarded-For` tells.
  ///
  /// Proxies write one of them, and most pass the other on as a client sent it. So where the two tell of different
  /// clients nobody knows which is the proxy's word, and the request is the proxy's own.
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
      // What a proxy doesn't know, or hides, is as good as the proxy.
      guard isTrusted(address), let next = Self.address(hop) else { break }
      address = next
    }
    return address
  }

  /// The nodes of `Forwarded`, the client's first; nil without that field.
  private static func forwarded(_ fields: HTTPFields) -> [Substring]? {
    fields[.forwarded].map { field in
      split(field[...], at: ",").map { element in
        split(element, at: ";").lazy.map(trimmed).first { $0.prefix(4).lowercased() == "for=" }?
          .dropFirst(4) ?? ""
      }
    }
  }

  /// The same of `X-Forwarded-For`.
  private static func forwardedFor(_ fields: HTTPFields) -> [Substring]? {
    fields[.xForwardedFor].map { $0.split(separator: ",").map(trimmed) }
  }

  /// At a character that is in no quoted string.
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

  /// A node's address without its port and its quotes; nil where it is none.
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
