internal import Foundation
internal import GRDB
internal import Jobs

/// Hands over jobs in the order of the queue, each where its origin has room.
///
/// A job whose origin has none when its turn comes is parked: out of the queue, so that it is looked at once and not by
/// every claim after that. Each look at the queue then sees its first job and the first parked one of each origin that
/// has room again, which is known without asking the database unless that one changed. A parked job keeps its rank, so
/// that its place among the others is the same as if it had never left.
struct Dequeue {
  /// Jobs that one transaction looks at in vain: parking them is work, and everybody else's changes wait for it.
  static let maxLooks = 2_000

  private let instance: Instance
  private let moment: Timestamp
  private let count: Int
  /// What is left once these jobs were taken.
  private(set) var room: OriginRoom
  /// Those taken, as they then are.
  private(set) var taken: [JobRow] = []
  private var looks = Self.maxLooks
  /// The queue's next jobs, the first one last, those that have room before them not yet known.
  private var page: [JobRow] = []
  /// Origins with room that may have parked jobs.
  private var open: [String]

  /// Whether all was taken that there is, or that was asked for.
  var isDone: Bool { looks > 0 || taken.count >= count }

  init(
    _ count: Int, for instance: Instance, at moment: Timestamp, room: OriginRoom,
    of transaction: WriteTransaction
  ) {
    self.instance = instance
    self.moment = moment
    self.count = count
    self.room = room
    open = transaction.counters.parked.origins.filter { room[$0] > 0 }
  }

  /// Takes jobs until there are enough, no more, or too many were looked at in vain.
  mutating func run(in transaction: inout WriteTransaction) throws {
    while taken.count < count, let row = try next(in: &transaction) {
      forget(row)
      taken.append(try transaction.take(row, for: instance, at: moment))
      transaction.counters.dequeued += 1
      room.take(row.origin)
      if let origin = row.origin, room[origin] <= 0 { open.removeAll { $0 == origin } }
    }
  }

  /// Takes a row off the page, if it is there.
  private mutating func forget(_ row: JobRow) {
    if page.last?.number == row.number {
      page.removeLast()
    } else {
      page.removeAll { $0.number == row.number }
    }
  }

  private mutating func next(in transaction: inout WriteTransaction) throws -> JobRow? {
    let isAgedTurn = QueueOrder.isAgedTurn(after: transaction.counters.dequeued)
    if isAgedTurn, let row = try oldest(in: &transaction) { return row }
    return looks > 0 ? try first(in: &transaction) : nil
  }
}

/// The order of the queue.
extension Dequeue {
  /// The best of the queue's first job with room and the parked ones with room; nil when there is none, or too many
  /// were looked at.
  private mutating func first(in transaction: inout WriteTransaction) throws -> JobRow? {
    while true {
      let row = try firstReady(in: &transaction)
      guard looks > 0 else { return nil }
      guard let parked = try firstParked(in: &transaction), row.map(parked.isBefore) ?? true else {
        return row
      }
      if let row = try fetch(parked.head, in: &transaction) { return row }
    }
  }

  private mutating func firstReady(in transaction: inout WriteTransaction) throws -> JobRow? {
    var size = count - taken.count
    while looks > 0 {
      if page.isEmpty {
        page = try JobRow.fetchAll(
          "phase = 0 AND waiting = 0 ORDER BY priority DESC, rank LIMIT ?", [size], transaction.db
        ).reversed()
        size = min(128, max(16, size * 2))
      }
      guard let row = page.last else { return nil }
      if try mayGo(row, in: &transaction) { return row }
      page.removeLast()
    }
    return nil
  }

  /// Whether a queued job may be taken now; one that may not waits for what it lacks.
  private mutating func mayGo(_ row: JobRow, in transaction: inout WriteTransaction) throws -> Bool
  {
    if let notBefore = row.notBefore, notBefore > moment.milliseconds {
      // The clock went back since this one was due.
      try transaction.move(row, to: .due)
    } else if room[row.origin] <= 0 {
      try transaction.move(row, to: .parked)
    } else {
      return true
    }
    looks -= 1
    return false
  }

  /// The row of a parked job whose origin has room; nil if it must wait for its time after all.
  private mutating func fetch(_ head: ParkedHeads.Head, in transaction: inout WriteTransaction)
    throws -> JobRow?
  {
    guard let row = try JobRow.fetch(number: head.number, transaction.db) else {
      throw StoreError.unavailable(detail: "a parked job is not where it was")
    }
    return try mayGo(row, in: &transaction) ? row : nil
  }

  private struct Parked {
    var priority: Int
    var head: ParkedHeads.Head

    func isBefore(_ row: JobRow) -> Bool {
      priority == row.priority ? head.rank < row.rank : priority > row.priority
    }
  }

  private func firstParked(in transaction: inout WriteTransaction) throws -> Parked? {
    guard !open.isEmpty else { return nil }
    for priority in Priority.allCases.reversed() {
      if let head = try firstParked(at: priority.rawValue, in: &transaction) {
        return Parked(priority: priority.rawValue, head: head)
      }
    }
    return nil
  }

  private func firstParked(at priority: Int, in transaction: inout WriteTransaction) throws
    -> ParkedHeads.Head?
  {
    var first: ParkedHeads.Head?
    for origin in open {
      let head = try transaction.counters.parked.head(origin, priority, transaction.db)
      guard let head, head.rank < first?.rank ?? .max else { continue }
      first = head
    }
    return first
  }
}

/// That nobody waits for ever.
extension Dequeue {
  /// The head of a level: a row, or a parked job whose row is yet to be read.
  private enum LevelHead {
    case ready(JobRow, JobID)
    case parked(ParkedHeads.Head)

    var id: JobID {
      switch self {
      case .ready(_, let id): id
      case .parked(let head): head.id
      }
    }
  }

  /// Of the jobs at the heads of the levels the one submitted first, if that is long ago.
  private mutating func oldest(in transaction: inout WriteTransaction) throws -> JobRow? {
    while true {
      var oldest: LevelHead?
      for priority in Priority.allCases {
        let head = try head(at: priority.rawValue, in: &transaction)
        guard looks > 0 else { return nil }
        guard let head, oldest.map({ head.id < $0.id }) ?? true else { continue }
        oldest = head
      }
      guard let oldest, QueueOrder.isOld(oldest.id, at: moment) else { return nil }
      switch oldest {
      case .ready(let row, _): return row
      case .parked(let head): if let row = try fetch(head, in: &transaction) { return row }
      }
    }
  }

  private mutating func head(at priority: Int, in transaction: inout WriteTransaction) throws
    -> LevelHead?
  {
    let parked = try firstParked(at: priority, in: &transaction)
    let ready = try firstReady(at: priority, in: &transaction)
    if let parked, parked.rank < ready?.rank ?? .max { return .parked(parked) }
    return ready.flatMap { row in row.jobID.map { .ready(row, $0) } }
  }

  private mutating func firstReady(at priority: Int, in transaction: inout WriteTransaction) throws
    -> JobRow?
  {
    while looks > 0 {
      let row = try JobRow.fetchAll(
        "phase = 0 AND waiting = 0 AND priority = ? ORDER BY rank LIMIT 1", [priority],
        transaction.db
      ).first
      guard let row else { return nil }
      if try mayGo(row, in: &transaction) { return row }
      forget(row)
    }
    return nil
  }
}
