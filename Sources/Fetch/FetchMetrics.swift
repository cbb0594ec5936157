internal import Jobs
internal import Metrics

/// What the fetcher counts; made after the metrics system was chosen.
final class FetchMetrics: Sendable {
  let bytes = Counter(label: "imagefetch_fetch_bytes_total")
  let openTransfers = Gauge(label: "imagefetch_fetch_open_transfers")
  private let outcomes: [String: Counter]

  init() {
    outcomes = Dictionary(
      uniqueKeysWithValues: Self.names.map { name in
        (name, Counter(label: "imagefetch_fetch_requests_total", dimensions: [("outcome", name)]))
      })
  }

  /// Counts a fetch that is over.
  /// - Parameter error: nil for one that brought its whole body.
  func count(_ error: FetchError?) { outcomes[Self.name(error)]?.increment() }

  private static let names = [
    "success", "blocked_address", "dns_failure", "connect_failure", "tls_failure", "timeout",
    "stalled", "too_many_redirects", "origin_status", "no_data", "too_large", "truncated",
    "cancelled",
  ]

  static func name(_ error: FetchError?) -> String {
    switch error {
    case nil: "success"
    case .blocked: "blocked_address"
    case .dnsFailure: "dns_failure"
    case .connectFailure: "connect_failure"
    case .tlsFailure: "tls_failure"
    case .timeout: "timeout"
    case .stalled: "stalled"
    case .tooManyRedirects: "too_many_redirects"
    case .badRedirect, .originStatus: "origin_status"
    case .noData: "no_data"
    case .tooLarge: "too_large"
    case .truncated: "truncated"
    case .cancelled: "cancelled"
    }
  }
}
