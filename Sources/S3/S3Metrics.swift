internal import Metrics

/// Metrics of requests to object stores, for `GET /metrics`. All buckets of the process share them.
struct S3Metrics: Sendable {
  private let durations: [String: Timer]
  private let retries = Counter(label: "imagefetch_object_store_retries_total")

  init() {
    durations = Dictionary(
      uniqueKeysWithValues: ["GET", "PUT", "POST", "DELETE"].map { method in
        let timer = Timer(
          label: "imagefetch_object_store_seconds", dimensions: [("method", method)])
        return (method, timer)
      })
    // Created at the start with the value 0, so that the first event is visible as an increase.
    for outcome in ["ok", "missing", "refused", "slow_down", "unreachable"] {
      counter(outcome).increment(by: 0)
    }
  }

  /// Records one try, up to the response's header section or the end of its content.
  func ended(_ method: String, after time: Duration, _ error: S3Error?) {
    durations[method]?.record(duration: time)
    counter(outcome(error)).increment()
  }

  func retried() { retries.increment() }

  private func outcome(_ error: S3Error?) -> String {
    switch error {
    case nil: "ok"
    case .refused(404, _, _): "missing"
    case .refused(429, _, _), .refused(503, _, _): "slow_down"
    case .refused: "refused"
    default: "unreachable"
    }
  }

  private func counter(_ outcome: String) -> Counter {
    Counter(label: "imagefetch_object_store_requests_total", dimensions: [("outcome", outcome)])
  }
}
