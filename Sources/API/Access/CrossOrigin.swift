internal import HTTPTypes
internal import Synchronization

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
