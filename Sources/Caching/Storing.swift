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
    if request.contains(where: { $0.isNamed("authorization") || $0.isNamed("cookie") }),
      !control.has(.public), !control.has(.mustRevalidate), !control.has(.sharedMaxAge)
    {
      return false
    }
    return understood.contains(status) || isExplicit(control, response)
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
    control.has(.public) || control.has(.maxAge) || control.has(.sharedMaxAge)
      || response.first("expires") != nil
  }
}
