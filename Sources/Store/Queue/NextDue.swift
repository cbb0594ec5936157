internal import GRDB
internal import Jobs

/// The earliest due time of waiting jobs, cached so that claims need no query before it.
struct NextDue: Sendable {
  private enum Known: Sendable {
    case unknown
    /// `nil` if no job waits.
    case at(Int64?)
  }

  private var known = Known.unknown
  /// See ``QueueOrder/isDue(_:at:longestWait:)``.
  var longestWait = Duration.seconds(86_400)

  /// Returns whether jobs may have become due.
  func mayHaveDueJobs(at moment: Timestamp) -> Bool {
    switch known {
    case .unknown: true
    case .at(nil): false
    case .at(let next?):
      QueueOrder.isDue(Timestamp(milliseconds: next), at: moment, longestWait: longestWait)
    }
  }

  /// The latest valid due time, in milliseconds.
  func latest(at moment: Timestamp) -> Int64 { (moment + longestWait).milliseconds }

  /// Adds a row that was inserted.
  mutating func add(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .due, let notBefore = row.notBefore,
      case .at(let next) = known
    else { return }
    known = .at(min(next ?? .max, notBefore))
  }

  /// Removes a row that was deleted.
  mutating func remove(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .due, case .at(row.notBefore) = known else { return }
    known = .unknown
  }

  /// Empties the cache after several rows changed.
  mutating func invalidate() { known = .unknown }

  /// The earliest due time; `nil` if no job waits.
  mutating func moment(_ db: Database) throws -> Timestamp? {
    if case .at(let next) = known { return next.map(Timestamp.init) }
    let next = try Int64.fetchOne(
      db.cachedStatement(
        sql: "SELECT min(not_before) FROM jobs WHERE phase = 0 AND waiting = 1"))
    known = .at(next)
    return next.map(Timestamp.init)
  }
}
