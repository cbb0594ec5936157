/// Where the service is, and how it knows us.
public struct ServiceAddress: Sendable {
  /// `http://127.0.0.1:8080`, without a slash at its end.
  let base: String
  /// Sent as `Authorization: Bearer …`.
  let token: String?
  /// It runs in this process, for us alone: what it keeps of a job is forgotten once the job is through with, and no
  /// proxy stands before it.
  let isOurs: Bool

  /// Whether it is on this machine: no proxy can reach it there, or is to see the token.
  var isLoopback: Bool {
    let pattern = #/https?://(localhost|127\.[0-9.]+|\[::1\])(:|/|$)/#
    return base.lowercased().prefixMatch(of: pattern) != nil
  }

  /// - Parameters:
  ///   - base: an http or https URL, perhaps with a path that the service stands below.
  ///   - token: nil for a service that asks for none.
  ///   - isOurs: whether it runs in this process.
  /// - Returns: nil where `base` is no such URL, or carries more than that.
  public init?(_ base: String, token: String?, isOurs: Bool = false) {
    let lowercase = base.lowercased()
    guard lowercase.hasPrefix("http://") || lowercase.hasPrefix("https://"),
      base.utf8.allSatisfy({ 0x21...0x7E ~= $0 }), !base.contains(where: { "@?#\\".contains($0) }),
      let slashes = base.firstRange(of: "//"), base.utf8.count <= 2048
    else { return nil }
    let rest = base[slashes.upperBound...]
    guard let first = rest.first, first != "/", first != ":" else { return nil }
    self.base = base.hasSuffix("/") ? String(base.dropLast()) : base
    self.token = token
    self.isOurs = isOurs
  }

  /// Whether it is what a bearer token may be made of (RFC 6750 section 2.1), and no longer than a header field should.
  public static func isToken(_ text: String) -> Bool {
    1...4096 ~= text.utf8.count && text.utf8.allSatisfy { 0x21...0x7E ~= $0 }
  }
}
