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
  package static func permits(redirect: [Field], status: Int, to request: [Field]) -> Bool {
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
  package static func isPublic(_ response: [Field]) -> Bool { CacheControl(response).has(.public) }

  /// Whether the response declares itself shareable (`public` or `s-maxage`), whatever credentials its request carried.
  package static func isShareable(_ response: [Field]) -> Bool {
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
