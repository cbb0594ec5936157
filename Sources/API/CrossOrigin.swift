internal import HTTPTypes
internal import Synchronization

/// Which web origins' scripts may use the API (the Fetch standard's CORS protocol).
struct CrossOrigin: Sendable {
  private let origins: Set<String>
  private let refused = RefusedOrigins()

  init(origins: [String]) { self.origins = Set(origins) }

  /// The request's origin where a page of another one than this service's own is not let in, and that was not yet told.
  func newlyRefused(_ fields: HTTPFields) -> String? {
    guard isEnabled, let origin = fields[.origin], !admits(origin) else { return nil }
    // A service's own page names its origin too.
    let host = fields[.hostField]?.lowercased()
    guard origin != "null", !origin.lowercased().hasSuffix("://\(host ?? "")") else { return nil }
    return refused.insert(origin) ? origin : nil
  }

  var isEnabled: Bool { !origins.isEmpty }

  /// Whether scripts of this origin may use the API.
  func admits(_ origin: String) -> Bool { origins.contains("*") || origins.contains(origin) }

  /// Adds what lets a script of the request's origin read the answer.
  func admit(_ origin: String?, to fields: inout HTTPFields) {
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

  /// Adds what answers a browser's question before the request proper.
  func admitPreflight(_ requestFields: HTTPFields, of route: Route, to fields: inout HTTPFields) {
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

/// Origins that were logged: each once, and at most a hundred, as a client can invent them.
final class RefusedOrigins: Sendable {
  private let logged = Mutex<Set<String>>([])

  func insert(_ origin: String) -> Bool {
    logged.withLock { $0.count < 100 && origin.utf8.count <= 256 && $0.insert(origin).inserted }
  }
}
