internal import Foundation
internal import GRDB
internal import Jobs

/// Claims jobs in queue order. A job is claimed if its origin and its owner have free capacity.
///
/// If the origin has none, the job is marked as parked (deferred), so that later claims do not read
/// it again. Later claims compare a queue's first ready job with the first parked job of each
/// origin that has capacity again. The first parked jobs are cached in memory. A parked job keeps
/// its rank and therefore its position in the queue. All jobs of an owner without capacity are
/// skipped together.
struct Dequeue {
  /// The maximum number of rows that one transaction reads without claiming them: each is deferred
  /// by a write, and all other changes wait.
  static let maxRowsPerClaim = 2_000
  /// The maximum number of queues whose first jobs are compared to find the oldest job.
  private static let maxHeads = 32

  private let instance: Instance
  private let moment: Timestamp
  private let count: Int
  /// The capacity that remains after the claimed jobs.
  private(set) var room: OriginCapacity
  private(set) var owners: OwnerCapacity<Data>
  /// The claimed jobs in their new state.
  private(set) var claimed: [JobRow] = []
  private var rowsLeft = Self.maxRowsPerClaim
  /// The next jobs of each position, in reverse order; their origins' capacity is not checked yet.
  private var pages: [ReadyQueues.Position: [JobRow]] = [:]
  /// Positions without further claimable jobs.
  private var exhausted: Set<ReadyQueues.Position> = []
  /// Origins with capacity that may have parked jobs.
  private var open: [String]
  /// The number of positions compared so far.
  private(set) var inspected = 0

  /// False if the limit of rows was reached before enough jobs were found.
  var isDone: Bool { rowsLeft > 0 || claimed.count >= count }

  init(
    _ count: Int, for instance: Instance, at moment: Timestamp, room: OriginCapacity,
    owners: OwnerCapacity<Data>, of transaction: WriteTransaction
  ) {
    self.instance = instance
    self.moment = moment
    self.count = count
    (self.room, self.owners) = (room, owners)
    open = transaction.counters.parked.origins.filter { room[$0] > 0 }
  }

  /// Claims jobs until there are enough, no more exist, or the limit of rows is reached.
  mutating func run(in transaction: inout WriteTransaction) throws {
    while claimed.count < count, let row = try next(in: &transaction) {
      removeFromPage(row)
      claimed.append(try transaction.markLoading(row, for: instance, at: moment))
      transaction.counters.claimedCount += 1
      transaction.counters.readyQueues.recordClaim(of: row.position.lane)
      room.countTransfer(to: row.origin)
      owners.countJob(of: row.owner)
      if let origin = row.origin, room[origin] <= 0 { open.removeAll { $0 == origin } }
    }
  }

  /// Removes a row from its page, if present.
  private mutating func removeFromPage(_ row: JobRow) {
    pages[row.position]?.removeAll { $0.number == row.number }
  }

  private mutating func next(in transaction: inout WriteTransaction) throws -> JobRow? {
    let count = transaction.counters.claimedCount
    if QueueOrder.choosesByAge(after: count), let row = try oldest(in: &transaction) { return row }
    return try first(owners: QueueOrder.choosesByOwner(after: count), in: &transaction)
  }
}

/// Queue order.
extension Dequeue {
  /// Returns the next job in round-robin order; `nil` if no job is claimable or the limit of rows
  /// is reached.
  private mutating func first(
    owners: Bool, in transaction: inout WriteTransaction
  ) throws -> JobRow? {
    while rowsLeft > 0 {
      let ready = transaction.counters.readyQueues.next(
        ownersFirst: owners, of: self.owners.hasCapacity(for:), except: exhausted, &inspected)
      let places = Array(Set(ready + parkedPlaces(last: false, in: transaction)))
      guard let place = transaction.counters.readyQueues.first(of: places, owners: owners) else {
        return nil
      }
      if let row = try head(at: place, in: &transaction) { return row }
      if rowsLeft > 0 { exhausted.insert(place) }
    }
    return nil
  }

  /// Returns positions with parked jobs that may be claimable.
  private mutating func parkedPlaces(
    last: Bool, in transaction: WriteTransaction
  ) -> [ReadyQueues.Position] {
    let places = open.flatMap {
      transaction.counters.parked.places(of: $0, ownedBy: owners.hasCapacity(for:), last: last) {
        !exhausted.contains($0)
          && transaction.counters.readyQueues.stoppedLine(of: $0.lane.batch) == nil
      }
    }
    inspected += places.count
    return places
  }

  /// Returns the first claimable job of a position, ready or parked.
  private mutating func head(
    at place: ReadyQueues.Position, in transaction: inout WriteTransaction
  ) throws -> JobRow? {
    while true {
      let ready = try firstReady(at: place, in: &transaction)
      guard rowsLeft > 0 else { return nil }
      guard let parked = try firstParked(at: place, in: &transaction),
        parked.rank < ready?.rank ?? .max
      else { return ready }
      if let row = try fetch(parked, in: &transaction) { return row }
      guard rowsLeft > 0 else { return nil }
    }
  }

  private mutating func firstReady(
    at place: ReadyQueues.Position, in transaction: inout WriteTransaction
  ) throws -> JobRow? {
    var size = max(1, count - claimed.count)
    while rowsLeft > 0 {
      if pages[place]?.isEmpty ?? true {
        guard transaction.counters.readyQueues.isReady(place) else { return nil }
        pages[place] = try JobRow.fetchAll(
          """
          phase = 0 AND waiting = 0 AND priority = ? AND owner = ? AND batch = ? ORDER BY rank LIMIT ?
          """, [place.priority, place.lane.owner, place.lane.batch, size], transaction.db
        ).reversed()
        size = min(128, max(16, size * 2))
      }
      guard let row = pages[place]?.last else { return nil }
      if try isClaimable(row, in: &transaction) { return row }
      pages[place]?.removeLast()
    }
    return nil
  }

  /// Returns whether a job may be claimed now; otherwise changes its state to due or parked.
  private mutating func isClaimable(_ row: JobRow, in transaction: inout WriteTransaction) throws
    -> Bool
  {
    if let notBefore = row.notBefore,
      !transaction.counters.nextDue.isDue(notBefore, at: moment)
    {
      // The clock was set back after this job became due.
      try transaction.setState(of: row, to: .due)
    } else if room[row.origin] <= 0 {
      try transaction.setState(of: row, to: .parked)
    } else {
      return true
    }
    rowsLeft -= 1
    return false
  }

  /// Returns the row of a parked job; `nil` if its due time is in the future again.
  private mutating func fetch(_ head: ParkedJobs.Head, in transaction: inout WriteTransaction)
    throws -> JobRow?
  {
    guard let row = try JobRow.fetch(number: head.number, transaction.db) else {
      throw StoreError.unavailable(detail: "the row of a parked job is missing")
    }
    return try isClaimable(row, in: &transaction) ? row : nil
  }

  private func firstParked(
    at place: ReadyQueues.Position, in transaction: inout WriteTransaction
  ) throws -> ParkedJobs.Head? {
    var first: ParkedJobs.Head?
    for origin in open {
      let head = try transaction.counters.parked.first(origin, place, transaction.db)
      guard let head, head.rank < first?.rank ?? .max else { continue }
      first = head
    }
    return first
  }

  /// Returns the oldest job among the first jobs of all positions, if it has waited very long. This
  /// prevents starvation.
  private mutating func oldest(in transaction: inout WriteTransaction) throws -> JobRow? {
    var oldest: (row: JobRow, id: JobID)?
    let ready = transaction.counters.readyQueues.last(
      Self.maxHeads, of: owners.hasCapacity(for:), except: exhausted, &inspected)
    let places = transaction.counters.readyQueues.sorted(
      Array(Set(ready + parkedPlaces(last: true, in: transaction))), owners: true)
    for place in places.suffix(Self.maxHeads) {
      let row = try head(at: place, in: &transaction)
      guard rowsLeft > 0 else { return nil }
      guard let row, let id = row.jobID, oldest.map({ id < $0.id }) ?? true else { continue }
      oldest = (row, id)
    }
    guard let oldest, QueueOrder.isOld(oldest.id, at: moment) else { return nil }
    return oldest.row
  }
}
