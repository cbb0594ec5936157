/// What may be stored (RFC 9111 section 3).
public enum Storing {
  /// Whether a shared cache may store that response to a GET. Only whole ones are: no 206.
  ///
  /// A request with `Cookie` counts as one with `Authorization` (section 3.5): both may bring what
  /// is somebody's own. What `Vary: *` would keep from ever being used is not stored either.
  public static func permits(request: [Field], response: [Field], status: Int) -> Bool {
    let control = CacheControl(response)
    guard 200...299 ~= status, status != 206, !Vary(response).isAny,
      !CacheControl(request).has(.noStore), !forbids(control, status: status)
    else { return false }
    return permitsCredentials(in: request, control)
      && (understood.contains(status) || isExplicit(control, response))
  }

  /// Whether a shared cache may store that redirect, so that it needn't be asked again.
  ///
  /// 301 and 308 it may find fresh by itself; the others only by what they say (RFC 9110 section
  /// 15.4). A `public` alone says nothing of how long.
  public static func permits(redirect: [Field], status: Int, to request: [Field]) -> Bool {
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

  /// Whether the response says that it is for everyone even once it is stale, whatever its request brought: what is shared
  /// by `s-maxage` or `must-revalidate` alone is to be confirmed then (RFC 9111 sections 5.2.2.2 and 5.2.2.10).
  public static func isPublic(_ response: [Field]) -> Bool { CacheControl(response).has(.public) }

  /// Whether the response says itself that it is for everyone, whatever its request brought.
  public static func isForAll(_ response: [Field]) -> Bool {
    let control = CacheControl(response)
    return control.has(.public) || control.has(.sharedMaxAge)
  }

  private static func permitsCredentials(in request: [Field], _ control: CacheControl) -> Bool {
    guard request.contains(where: { $0.isNamed("authorization") || $0.isNamed("cookie") }) else {
      return true
    }
    return control.has(.public) || control.has(.mustRevalidate) || control.has(.sharedMaxAge)
  }

  /// The statuses that a cache may find fresh by itself (RFC 9110 section 15.1), of those stored
  /// here.
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
