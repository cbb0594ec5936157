/// Decides which responses may be stored (RFC 9111 section 3).
package enum Storing {
  /// Whether a shared cache may store this response to a GET request. Partial responses (206) are never stored.
  ///
  /// A request with `Cookie` is treated like one with `Authorization` (section 3.5), because both can select a private
  /// response. A response with `Vary: *` is not stored, because it could never be used.
  package static func permits(request: [Field], response: [Field], status: Int) -> Bool {
    let control = CacheControl(response)
    guard 200...299 ~= status, status != 206, !Vary(response).isAny,
      !CacheControl(request).has(.noStore), !forbids(control, status: status)
    else { return false }
    return permitsCredentials(in: request, control)
      && (understood.contains(status) || isExplicit(control, response))
  }

  /// Whether a shared cache may store this redirect and follow it again without a request.
  ///
  /// 301 and 308 are heuristically cacheable. The other statuses need an explicit lifetime (RFC 9110 section 15.4);
  /// `public` alone does not state one.
  static func permits(redirect: [Field], status: Int, to request: [Field]) -> Bool {
    let control = CacheControl(redirect)
    guard !Vary(redirect).isAny, !CacheControl(request).has(.noStore),
      !forbids(control, status: status), permitsCredentials(in: request, control)
    else { return false }
    switch status {
    case 301, 308: return true
    case 302, 303, 307: return hasLifetime(control, redirect)
    default: return false
    }
  }

  /// Whether the response may be shared even when it is stale, whatever credentials its request carried.
  ///
  /// That requires `public`. A response that is shareable only because of `s-maxage` or `must-revalidate` must be validated
  /// when it is stale (RFC 9111 sections 5.2.2.2 and 5.2.2.10).
  static func isPublic(_ response: [Field]) -> Bool { CacheControl(response).has(.public) }

  /// Whether the response declares itself shareable (`public` or `s-maxage`), whatever credentials its request carried.
  static func isShareable(_ response: [Field]) -> Bool {
    let control = CacheControl(response)
    return control.has(.public) || control.has(.sharedMaxAge)
  }

  private static func permitsCredentials(in request: [Field], _ control: CacheControl) -> Bool {
    guard request.contains(where: { $0.isNamed("authorization") || $0.isNamed("cookie") }) else {
      return true
    }
    return control.has(.public) || control.has(.mustRevalidate) || control.has(.sharedMaxAge)
  }

  /// The storable statuses that are heuristically cacheable (RFC 9110 section 15.1).
  private static let understood = [200, 203, 204]

  private static func forbids(_ control: CacheControl, status: Int) -> Bool {
    if control.concernsAll(.private) { return true }
    if control.has(.mustUnderstand) { return !understood.contains(status) }
    return control.has(.noStore)
  }

  private static func isExplicit(_ control: CacheControl, _ response: [Field]) -> Bool {
    control.has(.public) || hasLifetime(control, response)
  }

  private static func hasLifetime(_ control: CacheControl, _ response: [Field]) -> Bool {
    control.has(.maxAge) || control.has(.sharedMaxAge) || response.first("expires") != nil
  }
}

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
  var assignedLifetime: Int?

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
  var entityTag: String? { fields.first("etag").flatMap { $0.isEmpty ? nil : $0 } }

  /// `Last-Modified` in milliseconds since the Unix epoch; nil if it is absent or invalid.
  var lastModified: Int64? { date("last-modified") }

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

/// A redirect that led to a stored response (RFC 9110 section 15.4).
package struct StoredRedirect: Sendable, Equatable, Codable {
  /// 301, 302, 303, 307 or 308.
  package let status: Int
  /// The redirect with only the fields that control its caching.
  package let response: StoredResponse
  /// Whether the request for it carried the client's fields. A redirect to another origin drops them.
  let hadFields: Bool

  /// - Parameters:
  ///   - client: the client's fields, whether or not the request carried them.
  ///   - hadFields: whether the request carried the client's fields.
  ///   - fields: the header fields of the redirect.
  ///   - requestTime: when the request was sent, in milliseconds since the Unix epoch.
  ///   - responseTime: when the response's header section was received, in milliseconds since the Unix epoch.
  package init(
    status: Int, to client: [Field], hadFields: Bool, fields: [Field], requestTime: Int64,
    responseTime: Int64
  ) {
    self.status = status
    self.hadFields = hadFields
    response = StoredResponse(
      to: hadFields ? client : [],
      fields: fields.filter { Self.kept.contains($0.name.lowercased()) },
      requestTime: requestTime, responseTime: responseTime, assignedLifetime: nil)
  }

  // Other fields are dropped, because a cache entry's record is read for each job that it may answer. An origin may send
  // 64 KiB of fields per redirect.
  private static let kept: Set = [
    "age", "cache-control", "date", "expires", "last-modified", "vary",
  ]

  fileprivate func matches(_ client: [Field]) -> Bool { response.matches(hadFields ? client : []) }
}

/// The redirects that led to a stored response. The response may be used only if each redirect may be used too.
package struct StoredPath: Sendable, Equatable, Codable {
  /// The redirects, first to last.
  package var redirects: [StoredRedirect]
  /// Whether the last request carried the client's fields.
  package var hadFields: Bool

  package init(redirects: [StoredRedirect], hadFields: Bool) {
    self.redirects = redirects
    self.hadFields = hadFields
  }

  /// The path without redirects.
  package static let direct = StoredPath(redirects: [], hadFields: true)

  /// Whether a shared cache may store the response and the redirects that led to it.
  /// - Parameters:
  ///   - status: the status of the response.
  ///   - client: the client's fields.
  package func permitsStoring(
    _ response: StoredResponse, status: Int, client: [Field]
  ) -> Bool {
    redirects.allSatisfy { redirect in
      Storing.permits(
        redirect: redirect.response.fields, status: redirect.status,
        to: redirect.hadFields ? client : [])
    }
      && Storing.permits(
        request: hadFields ? client : [], response: response.fields, status: status)
  }

  /// Whether each response on the path declares itself shareable, see ``Storing/isShareable(_:)``.
  package func isShareable(_ response: StoredResponse) -> Bool {
    redirects.allSatisfy { Storing.isShareable($0.response.fields) }
      && Storing.isShareable(response.fields)
  }

  /// Whether each response on the path has `public`, see ``Storing/isPublic(_:)``.
  package func isPublic(_ response: StoredResponse) -> Bool {
    redirects.allSatisfy { Storing.isPublic($0.response.fields) }
      && Storing.isPublic(response.fields)
  }

  /// Whether any request on the path carried the client's fields.
  package var everHadFields: Bool { hadFields || redirects.contains(where: \.hadFields) }

  /// Whether the response and all redirects match the request (RFC 9111 section 4.1).
  package func matches(_ response: StoredResponse, client: [Field]) -> Bool {
    redirects.allSatisfy { $0.matches(client) } && response.matches(hadFields ? client : [])
  }

  /// Identifies a stored response among those for the same URL. A response replaces a stored one with an equal selector.
  package func selector(of response: StoredResponse) -> String {
    let ways = redirects.enumerated().filter { !$0.element.response.selector.isEmpty }
    guard !ways.isEmpty else { return response.selector }
    return ways.map { "\($0.offset)\n\($0.element.response.selector)\n" }.joined()
      + "\n" + response.selector
  }
}

extension Freshness {
  /// Evaluates a response together with its redirects. It is usable only if all of them are. `age` and `lifetime` are those
  /// of the response.
  ///
  /// `assigned` can only shorten the operator's `fallback` for redirects that do not state a lifetime.
  package init(
    of response: StoredResponse, over path: StoredPath, at now: Int64, assigned: Int?,
    fallback: Int?
  ) {
    self.init(of: response, at: now, assigned: assigned, fallback: fallback)
    let narrowed = fallback.map { min($0, assigned ?? $0) }
    for redirect in path.redirects {
      narrow(to: Freshness(of: redirect.response, at: now, assigned: nil, fallback: narrowed))
    }
  }

  private mutating func narrow(to other: Freshness) {
    permitsStale = permitsStale && other.permitsStale
    permitsStaleWhileRevalidating =
      (isFresh || permitsStaleWhileRevalidating)
      && (other.isFresh || other.permitsStaleWhileRevalidating)
    permitsStaleIfError =
      (isFresh || permitsStaleIfError) && (other.isFresh || other.permitsStaleIfError)
    needsValidation = needsValidation || other.needsValidation
    isFresh = isFresh && other.isFresh
    isImmutable = isImmutable && other.isImmutable
    if let mine = freshUntil, let others = other.freshUntil {
      freshUntil = min(mine, others)
    } else {
      freshUntil = nil
    }
  }
}

/// A request field that selects a stored response, because `Vary` names it (RFC 9111 section 4.1).
package struct SelectingField: Sendable, Hashable, Codable {
  /// In lower case.
  package var name: String
  /// The normalized value of all lines; nil if the request lacks the field.
  package var value: String?

  init(name: String, value: String?) {
    self.name = name
    self.value = value
  }

  /// Reads the field from a request.
  /// - Parameter name: in lower case.
  package init(name: String, of request: [Field]) {
    self.init(name: name, value: Vary.normalized(request, name))
  }
}

/// The `Vary` field of a response (RFC 9110 section 12.5.5).
struct Vary {
  /// Whether a member is `*`: the response depends on more than the request's fields.
  let isAny: Bool
  /// The named fields, in lower case, sorted, without duplicates.
  let names: [String]

  init(_ fields: [Field]) {
    let members = Set(fields.members("vary").map { $0.lowercased() })
    isAny = members.contains("*")
    names = members.subtracting(["*"]).sorted()
  }

  func selecting(of request: [Field]) -> [SelectingField] {
    names.map { SelectingField(name: $0, value: Self.normalized(request, $0)) }
  }

  /// Fields whose members are ranked by `q` alone. Their case and order are ignored.
  private static let rankings: Set = ["accept-charset", "accept-encoding", "accept-language"]

  /// The values of all lines, joined by a comma and a space; nil if the request lacks the field.
  static func normalized(_ request: [Field], _ name: String) -> String? {
    let lines = request.values(name)
    guard !lines.isEmpty else { return nil }
    let members = lines.flatMap(FieldList.members)
    guard rankings.contains(name) else { return members.joined(separator: ", ") }
    return members.map { $0.lowercased().filter { $0 != " " && $0 != "\t" } }.sorted()
      .joined(separator: ", ")
  }
}

extension StoredResponse {
  /// Whether the response matches the request: the fields that `Vary` names are equal. A response with `Vary: *` never
  /// matches.
  package func matches(_ request: [Field]) -> Bool {
    let vary = Vary(fields)
    // A 304 response may have added names to `Vary` whose values were not stored.
    guard !vary.isAny, Set(vary.names).isSubset(of: selecting.map(\.name)) else { return false }
    return selecting.allSatisfy { $0.value == Vary.normalized(request, $0.name) }
  }

  /// Identifies a stored response among those for the same URL. A response replaces a stored one with an equal selector.
  package var selector: String {
    if Vary(fields).isAny { return "*" }
    return selecting.map { field in field.value.map { "\(field.name): \($0)" } ?? field.name }
      .joined(separator: "\n")
  }
}

/// Selects the stored response for a request (RFC 9111 section 4.1).
package enum Selection {
  /// The index of the newest matching response, by `Date` and then by the time when it was received; nil if none matches.
  package static func newest(
    of stored: [StoredResponse], where fits: (StoredResponse) -> Bool = { _ in true }
  ) -> Int? {
    stored.indices.filter { fits(stored[$0]) }.max { a, b in
      (stored[a].generated, stored[a].responseTime) < (stored[b].generated, stored[b].responseTime)
    }
  }
}
