internal import GRDB
internal import Jobs

/// When the next job is due that waits for its time. Remembered, so that claims need not look as long as none is.
struct NextDue: Sendable {
  private enum Known: Sendable {
    case unknown
    /// Nil: no job waits.
    case at(Int64?)
  }

  private var known = Known.unknown
  /// What waits longer than any job does was told to by a clock that has been set back since.
  var longestWait = Duration.seconds(86_400)

  /// Whether jobs may have become due.
  func mayHaveCome(at moment: Timestamp) -> Bool {
    switch known {
    case .unknown: true
    case .at(let next): next.map { hasCome($0, at: moment) } ?? false
    }
  }

  /// Whether a job may go that was to wait for a moment.
  func hasCome(_ next: Int64, at moment: Timestamp) -> Bool {
    next <= moment.milliseconds || next > latest(at: moment)
  }

  /// The last moment that a job may wait for.
  func latest(at moment: Timestamp) -> Int64 { (moment + longestWait).milliseconds }

  /// Notes that a row is in the table.
  mutating func add(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .due, let notBefore = row.notBefore,
      case .at(let next) = known
    else { return }
    known = .at(min(next ?? .max, notBefore))
  }

  /// Notes that a row is in the table no more.
  mutating func remove(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .due, case .at(row.notBefore) = known else { return }
    known = .unknown
  }

  /// Notes that some rows wait no more.
  mutating func forget() { known = .unknown }

  /// The moment; nil while no job waits.
  mutating func moment(_ db: Database) throws -> Timestamp? {
    if case .at(let next) = known { return next.map(Timestamp.init) }
    let next = try Int64.fetchOne(
      db.cachedStatement(
        sql: "SELECT min(not_before) FROM jobs WHERE phase = 0 AND waiting = 1"))
    known = .at(next)
    return next.map(Timestamp.init)
  }
}
