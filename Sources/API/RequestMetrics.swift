internal import HTTP
internal import HTTPTypes
internal import Metrics
internal import Synchronization

/// Counts and times requests. Each instrument is created once, because creating one takes a lock and a dictionary of
/// labels.
final class RequestMetrics: Sendable {
  private struct Instruments {
    var counters: [Int: Counter] = [:]
    var timers: [Int: Timer] = [:]
  }
  private let instruments = Mutex(Instruments())

  func record(
    _ route: Route, _ method: HTTPRequest.Method, _ status: HTTPResponse.Status, took: Duration
  ) {
    let label = Self.label(of: method, at: route)
    let pair = route.rawValue * 8 + label.index
    let (counter, timer) = instruments.withLock { made in
      (
        Self.one(pair * 1000 + status.code, in: &made.counters) {
          Counter(
            label: "imagefetch_http_requests_total",
            dimensions: [
              ("route", route.template), ("method", label.word), ("status", "\(status.code)"),
            ])
        },
        Self.one(pair, in: &made.timers) {
          Timer(
            label: "imagefetch_http_request_duration_seconds",
            dimensions: [("route", route.template), ("method", label.word)],
            preferredDisplayUnit: .seconds)
        }
      )
    }
    counter.increment()
    timer.record(duration: took)
  }

  private static func one<Instrument>(
    _ key: Int, in made: inout [Int: Instrument], _ make: () -> Instrument
  ) -> Instrument {
    if let instrument = made[key] { return instrument }
    let instrument = make()
    made[key] = instrument
    return instrument
  }

  /// The label of the method. All methods that the route does not support share one label, because the number of series
  /// is limited and clients could otherwise use it up.
  private static func label(
    of method: HTTPRequest.Method, at route: Route
  ) -> (index: Int, word: String) {
    guard route.methods.contains(method) else { return (6, "other") }
    return switch method {
    case .get: (0, "GET")
    case .head: (1, "HEAD")
    case .post: (2, "POST")
    case .patch: (3, "PATCH")
    case .delete: (4, "DELETE")
    case .options: (5, "OPTIONS")
    case .put: (7, "PUT")
    default: (6, "other")
    }
  }
}
