/// The address of a service and the token for it.
package struct ServiceAddress: Sendable {
  /// For example `http://127.0.0.1:8080`, without a slash at its end.
  let base: String
  /// Sent as `Authorization: Bearer …`.
  let token: String?
  /// Whether the service runs in this process, for this run alone. Its jobs are then deleted when they are
  /// done, and no proxy is used.
  let isInProcess: Bool

  /// Whether the service is on this machine. A proxy could not reach it there, and must not see the token.
  var isLoopback: Bool {
    let pattern = #/https?://(localhost|127\.[0-9.]+|\[::1\])(:|/|$)/#
    return base.lowercased().prefixMatch(of: pattern) != nil
  }

  /// - Parameters:
  ///   - base: An http or https URL. It may have a path that all routes are below.
  ///   - token: Nil for a service without tokens.
  ///   - isOurs: Whether the service runs in this process.
  /// - Returns: Nil if `base` is not such a URL, or has a query, fragment or user.
  package init?(_ base: String, token: String?, isOurs: Bool = false) {
    let lowercase = base.lowercased()
    guard lowercase.hasPrefix("http://") || lowercase.hasPrefix("https://"),
      base.utf8.allSatisfy({ 0x21...0x7E ~= $0 }), !base.contains(where: { "@?#\\".contains($0) }),
      let slashes = base.firstRange(of: "//"), base.utf8.count <= 2048
    else { return nil }
    let rest = base[slashes.upperBound...]
    guard let first = rest.first, first != "/", first != ":" else { return nil }
    self.base = base.hasSuffix("/") ? String(base.dropLast()) : base
    self.token = token
    self.isInProcess = isOurs
  }

  /// Whether the text can be a bearer token (RFC 6750 section 2.1) of at most 4,096 bytes.
  package static func isToken(_ text: String) -> Bool {
    1...4096 ~= text.utf8.count && text.utf8.allSatisfy { 0x21...0x7E ~= $0 }
  }
}
