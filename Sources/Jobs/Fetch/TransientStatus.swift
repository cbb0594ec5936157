/// Response statuses of temporary errors.
package enum TransientStatus {
  /// Whether the same request may succeed later.
  package static func contains(_ status: Int) -> Bool {
    [408, 425, 429, 500, 502, 503, 504].contains(status) || isOfGateway(status)
  }

  /// Cloudflare's statuses for an origin that is unreachable or overloaded. Excludes 526, an invalid
  /// certificate, because that error is not temporary.
  package static func isOfGateway(_ status: Int) -> Bool { 520...530 ~= status && status != 526 }
}
