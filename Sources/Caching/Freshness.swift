/// The age of a stored response at a given time, and how it may be used (RFC 9111 section 4.2).
package struct Freshness: Sendable, Equatable {
  /// How long the response is fresh: 0…2^31 seconds.
  package var lifetime: Int
  /// The response's age: 0…2^31 seconds (section 4.2.3).
  package var age: Int
  /// Whether the response may be used without validation: younger than its lifetime, and without `no-cache`.
  package var isFresh: Bool
  /// When the response becomes stale, in milliseconds since the Unix epoch; nil if it always needs validation.
  package var freshUntil: Int64?
  /// Whether the response must be validated before each use (`no-cache`).
  package var needsValidation: Bool
  /// Whether the stale response may be used if the origin can't be reached (section 4.2.4). False with `must-revalidate`,
  /// `proxy-revalidate`, `s-maxage` or `no-cache`.
  package var permitsStale: Bool
  /// Whether the stale response may be used now while it is validated (RFC 5861 section 3).
  package var permitsStaleWhileRevalidating: Bool
  /// Whether the stale response may be used now after an error (RFC 5861 section 4).
  package var permitsStaleIfError: Bool
  /// Whether the response does not change while it is fresh (RFC 8246).
  package var isImmutable: Bool

  /// Evaluates a response. If it does not state its lifetime, `assigned` applies, then the lifetime stored with it, then
  /// `fallback`.
  ///
  /// - Parameters:
  ///   - now: milliseconds since the Unix epoch.
  ///   - assigned: the lifetime in seconds that the requesting job assigns.
  ///   - fallback: the lifetime in seconds that the operator assigns; nil for section 4.2.2's heuristic. It also limits a
  ///     lifetime that another job stored with the response.
  package init(of response: StoredResponse, at now: Int64, assigned: Int?, fallback: Int?) {
    let control = CacheControl(response.fields)
    let initialAge = Self.initialAge(response)
    lifetime = DeltaSeconds.saturated(
      Self.explicitLifetime(response, control) ?? assigned
        ?? min(response.assignedLifetime ?? .max, fallback ?? Self.heuristicLifetime(response)))
    age = min(initialAge + Self.seconds(from: response.responseTime, to: now), DeltaSeconds.maximum)
    // A 304 response may have added a directive that forbids storing, after the response was stored.
    needsValidation =
      control.concernsAll(.noCache) || control.concernsAll(.private)
      || (control.has(.noStore) && !control.has(.mustUnderstand))
    isFresh = !needsValidation && age < lifetime
    freshUntil =
      needsValidation ? nil : response.responseTime + Int64(lifetime - initialAge) * 1000
    permitsStale =
      !needsValidation && !control.has(.mustRevalidate) && !control.has(.proxyRevalidate)
      && !control.has(.sharedMaxAge)
    let overdue = age - lifetime
    let isWithin = { (window: Int?) in window.map { overdue < $0 } ?? false }
    permitsStaleWhileRevalidating = permitsStale && isWithin(control.seconds(.staleWhileRevalidate))
    permitsStaleIfError = permitsStale && isWithin(control.seconds(.staleIfError))
    isImmutable = control.has(.immutable)
  }
}

/// Calculations in whole seconds.
extension Freshness {
  /// The lifetime that the response states (section 4.2.1); nil if it states none. An invalid `Expires` counts as expired.
  private static func explicitLifetime(_ response: StoredResponse, _ control: CacheControl) -> Int?
  {
    if let seconds = control.seconds(.sharedMaxAge) ?? control.seconds(.maxAge) { return seconds }
    guard response.fields.first("expires") != nil else { return nil }
    guard let expires = response.date("expires") else { return 0 }
    return seconds(from: response.generated, to: expires)
  }

  /// A tenth of the time between `Last-Modified` and `Date`.
  private static func heuristicLifetime(_ response: StoredResponse) -> Int {
    response.lastModified.map { seconds(from: $0, to: response.generated) / 10 } ?? 0
  }

  /// The age of the response when it was received. Only the first member of `Age` is used, and ignored if it is not a number
  /// (section 5.1).
  private static func initialAge(_ response: StoredResponse) -> Int {
    let apparent = seconds(from: response.generated, to: response.responseTime)
    let told = response.fields.members("age").first.flatMap(DeltaSeconds.read) ?? 0
    let delay = seconds(from: response.requestTime, to: response.responseTime)
    return DeltaSeconds.saturated(max(apparent, told + delay))
  }

  /// The whole seconds between two times, never negative.
  private static func seconds(from earlier: Int64, to later: Int64) -> Int {
    let (milliseconds, overflow) = later.subtractingReportingOverflow(earlier)
    guard !overflow else { return later > earlier ? DeltaSeconds.maximum : 0 }
    return DeltaSeconds.saturated(Int(milliseconds / 1000))
  }
}

/// Asks the origin whether a stored response is still current (RFC 9111 section 4.3).
package enum Validation {
  /// The fields `If-None-Match` and `If-Modified-Since` for the validators of the response, unchanged (section 4.3.1). Empty
  /// if the response has no validator.
  package static func conditions(for response: StoredResponse) -> [Field] {
    var conditions: [Field] = []
    if let tag = response.entityTag {
      conditions.append(Field(name: "If-None-Match", value: tag))
    }
    if response.lastModified != nil, let date = response.fields.first("last-modified") {
      conditions.append(Field(name: "If-Modified-Since", value: date))
    }
    return conditions
  }

  /// Updates a stored response with the fields of a 304 response (sections 3.2 and 4.3.4).
  ///
  /// - Returns: Nil if the 304 does not match the stored response: it has another entity tag, or another `Last-Modified` if
  ///   there are no tags.
  package static func freshen(
    _ stored: StoredResponse, with fields: [Field], requestTime: Int64, responseTime: Int64
  ) -> StoredResponse? {
    var updates = StoredResponse.kept(fields).filter { !unchanging.contains($0.name.lowercased()) }
    if updates.first("date") == nil {
      updates.append(Field(name: "Date", value: HTTPDate(milliseconds: responseTime).description))
    }
    var fresh = stored
    fresh.requestTime = requestTime
    fresh.responseTime = responseTime
    // The stored `Age` does not apply to the new response time.
    let replaced = Set(updates.map { $0.name.lowercased() }).union(["age"])
    fresh.fields = stored.fields.filter { !replaced.contains($0.name.lowercased()) } + updates
    return isSame(stored, fields, now: responseTime) ? fresh : nil
  }

  /// Fields that describe the stored bytes, so a 304 does not change them (section 3.2). Codings were removed before the
  /// bytes were stored.
  private static let unchanging: Set = ["content-encoding", "content-length", "content-range"]

  private static func isSame(_ stored: StoredResponse, _ fields: [Field], now: Int64) -> Bool {
    if let tag = fields.first("etag") {
      guard let own = stored.entityTag else { return tag.hasPrefix("W/") }
      return opaque(tag) == opaque(own)
    }
    guard stored.entityTag == nil, let own = stored.lastModified,
      let date = fields.first("last-modified").flatMap({ HTTPDate($0, now: now) })
    else { return true }
    return date.milliseconds == own
  }

  /// The tag without `W/`, for weak comparison (RFC 9110 section 8.8.3.2). An origin that compresses responses may weaken
  /// its tags.
  private static func opaque(_ tag: String) -> Substring {
    tag.hasPrefix("W/") ? tag.dropFirst(2) : tag[...]
  }
}
