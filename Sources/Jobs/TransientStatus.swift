/// Statuses of a response that pass without a change by the client.
package enum TransientStatus {
  /// Whether the same request may succeed later.
  package static func contains(_ status: Int) -> Bool {
    [408, 425, 429, 500, 502, 503, 504].contains(status) || isOfGateway(status)
  }

  /// Cloudflare's statuses for an origin that it can't reach, or that is overloaded. 526 is an origin without a valid
  /// certificate, which does not pass.
  package static func isOfGateway(_ status: Int) -> Bool { 520...530 ~= status && status != 526 }
}
