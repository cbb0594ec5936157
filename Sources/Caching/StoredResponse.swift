/// A response in the cache (RFC 9111 section 3). Times are milliseconds since the Unix epoch.
package struct StoredResponse: Sendable, Equatable, Codable {
  /// The response's header fields, except those that section 3.1 excludes: connection-specific fields and those listed by a
  /// qualified `no-cache` or `private`. That section keeps `Set-Cookie`. There is always a `Date`.
  package var fields: [Field]
  /// When the request was sent.
  package var requestTime: Int64
  /// When the response's header section was received.
  package var responseTime: Int64
  /// The request's fields that `Vary` names, sorted by name.
  package var selecting: [SelectingField]
  /// The lifetime in seconds that the fetching job assigned, for a response that does not state one; nil for none.
  package var assignedLifetime: Int?

  package init(
    to request: [Field], fields: [Field], requestTime: Int64, responseTime: Int64,
    assignedLifetime: Int?
  ) {
    self.fields = Self.kept(fields)
    self.requestTime = requestTime
    self.responseTime = responseTime
    self.selecting = Vary(fields).selecting(of: request)
    self.assignedLifetime = assignedLifetime
    // RFC 9110 section 6.6.1: a recipient that caches a response without `Date` adds one.
    if self.fields.first("date") == nil {
      self.fields.append(
        Field(name: "Date", value: HTTPDate(milliseconds: responseTime).description))
    }
  }

  /// The value of `ETag`; nil if there is none.
  package var entityTag: String? { fields.first("etag").flatMap { $0.isEmpty ? nil : $0 } }

  /// `Last-Modified` in milliseconds since the Unix epoch; nil if it is absent or invalid.
  package var lastModified: Int64? { date("last-modified") }

  /// When the origin generated the response: its `Date`, or the time of receipt if `Date` is invalid.
  var generated: Int64 { date("date") ?? responseTime }

  func date(_ name: String) -> Int64? {
    fields.first(name).flatMap { HTTPDate($0, now: responseTime)?.milliseconds }
  }
}

/// The fields that a cache keeps (section 3.1).
extension StoredResponse {
  private static let connectionSpecific: Set = [
    "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info",
    "proxy-authorization", "proxy-connection", "te", "transfer-encoding", "upgrade",
  ]

  /// Fields that control caching. They are kept even if the response lists them as excluded, which RFC 9110 section 7.6.1
  /// calls never appropriate. Without them the cache would allow more than the origin does.
  private static let governing: Set = ["age", "cache-control", "date", "expires", "vary"]

  static func kept(_ fields: [Field]) -> [Field] {
    let control = CacheControl(fields)
    let listed = control.fieldNames(.noCache).union(control.fieldNames(.private))
      .union(fields.members("connection").map { $0.lowercased() })
    let dropped = listed.subtracting(governing).union(connectionSpecific)
    return fields.filter { !dropped.contains($0.name.lowercased()) }
  }
}
