/// How old a stored response is at a moment, and what may be done with it (RFC 9111 section 4.2).
public struct Freshness: Sendable, Equatable {
  /// How long it is fresh, in seconds, at most 2^31.
  public var lifetime: Int
  /// Its age in seconds, at most 2^31 (section 4.2.3).
  public var age: Int
  /// Whether it may be used as it is: young enough, and no `no-cache`.
  public var isFresh: Bool
  /// When it becomes stale, in milliseconds since 1970; nil where it has to be validated anyway.
  public var freshUntil: Int64?
  /// Whether it has to be validated each time: `no-cache`.
  public var needsValidation: Bool
  /// Whether it may be used stale where the origin can't be reached (section 4.2.4): not with
  /// `must-revalidate`, `proxy-revalidate`, `s-maxage` or `no-cache`.
  public var permitsStale: Bool
  /// Whether it may be used now while it is validated (RFC 5861 section 3).
  public var permitsStaleWhileRevalidating: Bool
  /// Whether it may be used now after an error (RFC 5861 section 4).
  public var permitsStaleIfError: Bool
  /// Whether it won't change while it is fresh (RFC 8246).
  public var isImmutable: Bool

  /// - Parameters:
  ///   - now: milliseconds since 1970.
  ///   - assigned: the reader's own seconds for a response that says nothing; before the response's
  ///     own assigned ones.
  ///   - fallback: the seconds for one that says nothing and has none assigned, and the most that those may be, as somebody
  ///     else assigned them; nil: section 4.2.2's heuristic.
  public init(of response: StoredResponse, at now: Int64, assigned: Int?, fallback: Int?) {
    let control = CacheControl(response.fields)
    let initialAge = Self.initialAge(response)
    lifetime = DeltaSeconds.saturated(
      Self.explicitLifetime(response, control) ?? assigned
        ?? min(response.assignedLifetime ?? .max, fallback ?? Self.heuristicLifetime(response)))
    age = min(initialAge + Self.seconds(from: response.responseTime, to: now), DeltaSeconds.most)
    // A 304 may have brought a directive that would have kept the response from being stored.
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

/// The arithmetic, in whole seconds.
extension Freshness {
  /// What the response says (section 4.2.1); nil for nothing. An `Expires` that is no date has
  /// expired.
  private static func explicitLifetime(_ response: StoredResponse, _ control: CacheControl) -> Int?
  {
    if let seconds = control.seconds(.sharedMaxAge) ?? control.seconds(.maxAge) { return seconds }
    guard response.fields.first("expires") != nil else { return nil }
    guard let expires = response.date("expires") else { return 0 }
    return seconds(from: response.generated, to: expires)
  }

  /// A tenth of the time for which it hadn't changed.
  private static func heuristicLifetime(_ response: StoredResponse) -> Int {
    response.lastModified.map { seconds(from: $0, to: response.generated) / 10 } ?? 0
  }

  /// Its age when it came. `Age` is the first member's number; what is none is ignored (section
  /// 5.1).
  private static func initialAge(_ response: StoredResponse) -> Int {
    let apparent = seconds(from: response.generated, to: response.responseTime)
    let told = response.fields.members("age").first.flatMap(DeltaSeconds.read) ?? 0
    let delay = seconds(from: response.requestTime, to: response.responseTime)
    return DeltaSeconds.saturated(max(apparent, told + delay))
  }

  /// Whole seconds, never negative.
  private static func seconds(from earlier: Int64, to later: Int64) -> Int {
    let (milliseconds, overflow) = later.subtractingReportingOverflow(earlier)
    guard !overflow else { return later > earlier ? DeltaSeconds.most : 0 }
    return DeltaSeconds.saturated(Int(milliseconds / 1000))
  }
}
