/// Whose turn it is among those that wait for a lane's thread.
///
/// Transactions of one kind begin some time apart: the more of its requests share one, the less each costs. Everything else
/// gains nothing by waiting and goes as soon as it can, also while requests of that kind stand before it and wait for their
/// time. Where both may go they take turns: neither waits for all of the other, however many come.
struct Pacing: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// What a thread is to do.
  enum Next: Equatable {
    /// It serves the request at that place of the line, with those that may be merged with it.
    case serve(Int)
    /// It waits for another one, for so long at the most; nil: for however long that takes.
    case wait(Duration?)
  }

  /// Nil: none is paced.
  private let kind: Int?
  private let pace: Duration
  /// When the kind's next transaction may begin; nil: there was none.
  private var due: Instant?
  private var wasPaced = false

  /// Everything goes in its order.
  init() { (kind, pace) = (nil, .zero) }

  /// - Parameter pace: between the beginnings of two transactions of the kind, at the least. Where there is little to do
  ///   nothing waits.
  init(_ kind: Int, _ pace: Duration) { (self.kind, self.pace) = (kind, pace) }

  /// - Parameter kinds: of those that wait, in their order.
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

  /// Notes that a request of that kind is served.
  mutating func begin(_ kind: Int?, at moment: Instant) {
    wasPaced = kind != nil && kind == self.kind
    if wasPaced { due = moment + pace }
  }
}
