internal import HTTPTypes
internal import Synchronization

/// Refuses requests that a foreign web page may have caused, if the service has no tokens. A browser on the same
/// machine or network would otherwise send them for the page: through a DNS name that resolves to this service (DNS
/// rebinding), or through a form or script whose request needs no preflight.
///
/// With tokens nothing is checked, because the page does not know the token.
struct CrossSiteGuard: Sendable {
  private let isOpen: Bool
  private let hosts: Set<String>?
  private let crossOrigin: CrossOrigin
  private let refused = RefusedOrigins()

  init(_ configuration: APIConfiguration, _ crossOrigin: CrossOrigin) {
    isOpen = configuration.tokens.isEmpty
    hosts = configuration.allowedHosts
    self.crossOrigin = crossOrigin
  }

  /// - Parameter makesJobs: whether the request creates jobs whatever its method is.
  /// - Throws: `forbidden` if a foreign page may have caused the request.
  func check(
    _ method: HTTPRequest.Method, _ fields: HTTPFields, makesJobs: Bool
  ) throws(Problem) {
    guard isOpen else { return }
    let host = fields[.hostField] ?? ""
    if let hosts {
      guard let name = Self.name(of: host), Self.isLoopback(name) || hosts.contains(name) else {
        throw Problem(
          .forbidden,
          "The Host is not allowed: a service without tokens answers to localhost only. Use localhost, or configure tokens."
        )
      }
    }
    // Requests for images on a page have no Origin, so Sec-Fetch-Site (Fetch Metadata) is checked. If all hosts are
    // allowed, the operator wants images to be shown on any page.
    if makesJobs, hosts != nil, fields[.secFetchSite]?.lowercased() == "cross-site" {
      throw Problem(
        .forbidden,
        "A service without tokens shows no images on pages of other sites. Use the page's own host name in the URL (localhost and 127.0.0.1 are two sites), or configure view.keys and sign the URL."
      )
    }
    guard !Self.safe.contains(method), let origin = fields[.origin] else { return }
    guard Self.isSame(origin, host) || crossOrigin.allows(origin) else {
      throw Problem(
        .forbidden,
        "A service without tokens accepts no changes from web pages of other origins. Add the origin to server.cors_origins."
      )
    }
  }

  /// Returns the origin of the web page behind a refused request; nil if there is none or it was logged before.
  func newlyRefused(_ fields: HTTPFields) -> String? {
    let referrer = fields[.referer]?.firstMatch(of: #/^https?:\/\/[^\/?#]+/#)
    guard let page = fields[.origin] ?? referrer.map({ String($0.0) }) else { return nil }
    return refused.insert(page) ? page : nil
  }

  /// The safe methods (RFC 9110 section 9.2.1).
  private static let safe: Set<HTTPRequest.Method> = [.get, .head, .options, .trace]

  private static func isSame(_ origin: String, _ host: String) -> Bool {
    let (origin, host) = (origin.lowercased(), host.lowercased())
    return !host.isEmpty && (origin == "http://\(host)" || origin == "https://\(host)")
  }

  /// Returns the lower-case name of `host [":" port]`; nil if the value is malformed.
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

  /// Whether the name is `localhost`, `[::1]` or an address of 127.0.0.0/8 in its usual spelling. A name such as
  /// `127.0.0.1.example` does not count.
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

/// Decides which web origins' scripts may use the API (CORS protocol of the Fetch standard).
struct CrossOrigin: Sendable {
  private let origins: Set<String>
  private let refused = RefusedOrigins()

  init(origins: [String]) { self.origins = Set(origins) }

  /// Returns the request's origin if it is refused and was not logged before. The service's own origin is never
  /// refused.
  func newlyRefused(_ fields: HTTPFields) -> String? {
    guard isEnabled, let origin = fields[.origin], !allows(origin) else { return nil }
    // Browsers also send `Origin` for requests from the service's own pages.
    let host = fields[.hostField]?.lowercased()
    guard origin != "null", !origin.lowercased().hasSuffix("://\(host ?? "")") else { return nil }
    return refused.insert(origin) ? origin : nil
  }

  var isEnabled: Bool { !origins.isEmpty }

  /// Whether scripts of this origin may use the API.
  func allows(_ origin: String) -> Bool { origins.contains("*") || origins.contains(origin) }

  /// Adds the fields that let a script of the request's origin read the response.
  func addFields(for origin: String?, to fields: inout HTTPFields) {
    guard isEnabled else { return }
    if origins.contains("*") {
      fields[.accessControlAllowOrigin] = "*"
    } else {
      fields.append(HTTPField(name: .vary, value: "Origin"))
      guard let origin, origins.contains(origin) else { return }
      fields[.accessControlAllowOrigin] = origin
    }
    fields[.accessControlExposeHeaders] = Self.exposed
  }

  /// Adds the fields that answer a preflight request.
  func addPreflightFields(_ requestFields: HTTPFields, of route: Route, to fields: inout HTTPFields)
  {
    guard isEnabled, requestFields[.accessControlRequestMethod] != nil else { return }
    fields[.accessControlAllowMethods] = route.allow
    fields[.accessControlAllowHeaders] = Self.allowed
    fields[.accessControlMaxAge] = "600"
  }

  private static let exposed =
    "Accept-Ranges, Allow, Cache-Status, Content-Disposition, Content-Range, ETag, Image-Phase, "
    + "Image-Preview, Link, Location, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, "
    + "WWW-Authenticate, X-Request-Id"
  private static let allowed =
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, If-Modified-Since, "
    + "If-Unmodified-Since, If-Range, Last-Event-ID, Prefer, Range, Save-Data, traceparent, X-Request-Id"
}

/// The refused origins that were logged. Each is logged once. At most 100 are stored, because clients can invent
/// origins.
final class RefusedOrigins: Sendable {
  private let logged = Mutex<Set<String>>([])

  func insert(_ origin: String) -> Bool {
    logged.withLock { $0.count < 100 && origin.utf8.count <= 256 && $0.insert(origin).inserted }
  }
}
