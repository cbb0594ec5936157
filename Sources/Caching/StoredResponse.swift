/// A response as the cache keeps it (RFC 9111 section 3). Times are milliseconds since 1970.
public struct StoredResponse: Sendable, Equatable, Codable {
  /// Its fields without those of section 3.1: connection-specific ones, and what a qualified
  /// `no-cache` or `private` lists. `Set-Cookie` stays, as that section wants it. There is always a
  /// `Date`.
  public var fields: [Field]
  /// When the request was sent.
  public var requestTime: Int64
  /// When the response's fields had come.
  public var responseTime: Int64
  /// The request's fields that `Vary` names, sorted by name.
  public var selecting: [SelectingField]
  /// Freshness in seconds for a response that says nothing of its own, given by who had it fetched;
  /// nil: none.
  public var assignedLifetime: Int?

  public init(
    to request: [Field], fields: [Field], requestTime: Int64, responseTime: Int64,
    assignedLifetime: Int?
  ) {
    self.fields = Self.kept(fields)
    self.requestTime = requestTime
    self.responseTime = responseTime
    self.selecting = Vary(fields).selecting(of: request)
    self.assignedLifetime = assignedLifetime
    // RFC 9110 section 6.6.1 has the recipient give what is cached a `Date`.
    if self.fields.first("date") == nil {
      self.fields.append(
        Field(name: "Date", value: HTTPDate(milliseconds: responseTime).description))
    }
  }

  /// Its `ETag`, as in the field; nil where there is none.
  public var entityTag: String? { fields.first("etag").flatMap { $0.isEmpty ? nil : $0 } }

  /// Its `Last-Modified` in milliseconds since 1970; nil where there is none or it is no date.
  public var lastModified: Int64? { date("last-modified") }

  /// When the origin made it: its `Date`, or when it came if that is no date.
  var generated: Int64 { date("date") ?? responseTime }

  func date(_ name: String) -> Int64? {
    fields.first(name).flatMap { HTTPDate($0, now: responseTime)?.milliseconds }
  }
}

/// Which fields a cache keeps (section 3.1).
extension StoredResponse {
  private static let connectionSpecific: Set = [
    "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info",
    "proxy-authorization", "proxy-connection", "te", "transfer-encoding", "upgrade",
  ]

  /// What tells the cache how to treat the rest: it stays, even where a response lists it as not to
  /// be kept, which RFC 9110 section 7.6.1 calls never appropriate. Without it more would be
  /// allowed than the origin does.
  private static let governing: Set = ["age", "cache-control", "date", "expires", "vary"]

  static func kept(_ fields: [Field]) -> [Field] {
    let control = CacheControl(fields)
    let listed = control.fieldNames(.noCache).union(control.fieldNames(.private))
      .union(fields.members("connection").map { $0.lowercased() })
    let dropped = listed.subtracting(governing).union(connectionSpecific)
    return fields.filter { !dropped.contains($0.name.lowercased()) }
  }
}
