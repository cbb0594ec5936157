internal import HTTPTypes

/// Keeps foreign web pages out of a service without tokens, where a browser on the same machine or network would
/// otherwise act for them: by a name of theirs that leads here (DNS rebinding), or by a form or script that sends what
/// needs no preflight. With tokens a page lacks the secret, and nothing is checked.
struct CrossSiteGuard: Sendable {
  private let isOpen: Bool
  private let hosts: Set<String>?
  private let crossOrigin: CrossOrigin
  private let refused = RefusedOrigins()

  init(_ configuration: Configuration, _ crossOrigin: CrossOrigin) {
    isOpen = configuration.tokens.isEmpty
    hosts = configuration.allowedHosts
    self.crossOrigin = crossOrigin
  }

  /// - Throws: `forbidden` where a foreign page may be behind the request.
  ///
  /// - Parameter makesJobs: whether the request makes jobs whatever its method is.
  func check(
    _ method: HTTPRequest.Method, _ fields: HTTPFields, makesJobs: Bool
  ) throws(Problem) {
    guard isOpen else { return }
    let host = fields[.hostField] ?? ""
    if let hosts {
      guard let name = Self.name(of: host), Self.isLoopback(name) || hosts.contains(name) else {
        throw Problem(
          .forbidden,
          "This service has no tokens and answers only to localhost, not to the name in Host.")
      }
    }
    // What a picture on a page asks for has no Origin; browsers say this instead (Fetch Metadata). A service that is
    // openly open shows pictures on anybody's pages.
    if makesJobs, hosts != nil, fields[.secFetchSite]?.lowercased() == "cross-site" {
      throw Problem(
        .forbidden,
        "This service has no tokens and shows images to no page of another site. Use the page's own host name in the URL (localhost and 127.0.0.1 are two sites), or give the service view.keys and sign the URL."
      )
    }
    guard !Self.safe.contains(method), let origin = fields[.origin] else { return }
    guard Self.isSame(origin, host) || crossOrigin.admits(origin) else {
      throw Problem(
        .forbidden,
        "This service has no tokens and takes changes from no web page of another origin.")
    }
  }

  /// The web page behind a refused request, by its origin; nil where there is none, or where it was logged before.
  func newlyRefused(_ fields: HTTPFields) -> String? {
    let referrer = fields[.referer]?.firstMatch(of: #/^https?:\/\/[^\/?#]+/#)
    guard let page = fields[.origin] ?? referrer.map({ String($0.0) }) else { return nil }
    return refused.insert(page) ? page : nil
  }

  /// RFC 9110 section 9.2.1.
  private static let safe: Set<HTTPRequest.Method> = [.get, .head, .options, .trace]

  private static func isSame(_ origin: String, _ host: String) -> Bool {
    let (origin, host) = (origin.lowercased(), host.lowercased())
    return !host.isEmpty && (origin == "http://\(host)" || origin == "https://\(host)")
  }

  /// The lower-case name of `host [":" port]`; nil where it is something else.
  static func name(of host: String) -> String? {
    let host = host.lowercased()
    let bytes = host.utf8
    let isBracketed = bytes.first == UInt8(ascii: "[")
    let end =
      isBracketed
      ? bytes.firstIndex(of: UInt8(ascii: "]")).map { bytes.index(after: $0) }
      : bytes.firstIndex(of: UInt8(ascii: ":")) ?? bytes.endIndex
    guard let end, end > bytes.startIndex else { return nil }
    let port = bytes[end...]
    guard port.isEmpty || (port.first == UInt8(ascii: ":") && port.dropFirst().allSatisfy(isDigit))
    else { return nil }
    return String(host[..<end])
  }

  /// `localhost`, `[::1]`, or an address of 127.0.0.0/8 in its usual spelling: never a name that
  /// only begins like one.
  static func isLoopback(_ name: String) -> Bool {
    if name == "127.0.0.1" || name == "localhost" || name == "[::1]" { return true }
    let parts = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    let isAddress = parts.allSatisfy { part in
      1...3 ~= part.count && part.allSatisfy(isDigit) && UInt8(Substring(part)) != nil
    }
    return parts.count == 4 && isAddress && parts[0].elementsEqual("127".utf8)
  }

  private static func isDigit(_ byte: UInt8) -> Bool { 0x30...0x39 ~= byte }
}
