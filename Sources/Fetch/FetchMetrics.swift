internal import Jobs
internal import Metrics

/// The fetcher's metrics. Create it after the metrics system is set up.
final class FetchMetrics: Sendable {
  let bytes = Counter(label: "imagefetch_fetch_bytes_total")
  let openTransfers = Gauge(label: "imagefetch_fetch_open_transfers")

  /// Every failure code has a counter from the start, so that a rate includes its first fetch. Some codes never result
  /// from a fetch.
  private let outcomes = Dictionary(
    uniqueKeysWithValues: (["success", "cancelled"] + FailureCode.allCases.map(\.rawValue)).map {
      ($0, Counter(label: "imagefetch_fetch_requests_total", dimensions: [("outcome", $0)]))
    })

  /// Counts a finished fetch.
  /// - Parameter error: Nil if the whole body was read.
  func count(_ error: FetchError?) { outcomes[Self.name(error)]?.increment() }

  /// The value of the label `outcome`: a failure code, `success` or `cancelled`.
  static func name(_ error: FetchError?) -> String {
    switch error {
    case nil: "success"
    case .cancelled: "cancelled"
    case .some(let error): error.code.rawValue
    }
  }
}
