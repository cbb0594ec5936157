/// Selects the next request for a thread of ``RequestThreads``.
///
/// Transactions of one kind keep a minimum interval, so that more requests share each of them.
/// Other requests gain nothing by waiting: they run as soon as possible, also ahead of requests of
/// the paced kind. If both may run, they alternate, so that neither has to wait for all of the
/// other.
struct Pacing: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// The next step of a thread.
  enum Next: Equatable {
    /// Serve the request at this index, together with requests that can be merged.
    case serve(Int)
    /// Wait for another request, for at most this time; `nil` means without a limit.
    case wait(Duration?)
  }

  /// The paced kind; `nil` if there is none.
  private let kind: Int?
  private let pace: Duration
  /// The earliest start of the kind's next transaction; `nil` before the first.
  private var due: Instant?
  private var wasPaced = false

  /// Serves all requests in order, without an interval.
  init() { (kind, pace) = (nil, .zero) }

  /// - Parameter pace: the minimum interval between the starts of two transactions of the kind. A
  ///   first request never waits.
  init(_ kind: Int, _ pace: Duration) { (self.kind, self.pace) = (kind, pace) }

  /// - Parameter kinds: the kinds of the waiting requests, in order.
  func next(among kinds: [Int?], at moment: Instant) -> Next {
    guard !kinds.isEmpty else { return .wait(nil) }
    guard let kind, let paced = kinds.firstIndex(of: kind) else { return .serve(0) }
    let other = kinds.firstIndex { $0 != kind }
    let left = due.map { moment.duration(to: $0) } ?? .zero
    if left > .zero {
      guard let other else { return .wait(left) }
      return .serve(other)
    }
    guard let other, wasPaced else { return .serve(paced) }
    return .serve(other)
  }

  /// Records that a request of this kind is being served.
  mutating func recordStart(of kind: Int?, at moment: Instant) {
    wasPaced = kind != nil && kind == self.kind
    if wasPaced { due = moment + pace }
  }
}
