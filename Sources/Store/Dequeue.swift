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
  static let maxLooks = 2_000
  /// The maximum number of queues whose first jobs are compared to find the oldest job.
  private static let maxHeads = 32

  private let instance: Instance
  private let moment: Timestamp
  private let count: Int
  /// The capacity that remains after the claimed jobs.
  private(set) var room: OriginRoom
  private(set) var owners: OwnerRoom<Data>
  /// The claimed jobs in their new state.
  private(set) var taken: [JobRow] = []
  private var looks = Self.maxLooks
  /// The next jobs of each position, in reverse order; their origins' capacity is not checked yet.
  private var pages: [Lanes.Place: [JobRow]] = [:]
  /// Positions without further claimable jobs.
  private var exhausted: Set<Lanes.Place> = []
  /// Origins with capacity that may have parked jobs.
  private var open: [String]
  /// The number of positions compared so far.
  private(set) var inspected = 0

  /// False if the limit of rows was reached before enough jobs were found.
  var isDone: Bool { looks > 0 || taken.count >= count }

  init(
    _ count: Int, for instance: Instance, at moment: Timestamp, room: OriginRoom,
    owners: OwnerRoom<Data>, of transaction: WriteTransaction
  ) {
    self.instance = instance
    self.moment = moment
    self.count = count
    (self.room, self.owners) = (room, owners)
    open = transaction.counters.parked.origins.filter { room[$0] > 0 }
  }

  /// Claims jobs until there are enough, no more exist, or the limit of rows is reached.
  mutating func run(in transaction: inout WriteTransaction) throws {
    while taken.count < count, let row = try next(in: &transaction) {
      forget(row)
      taken.append(try transaction.take(row, for: instance, at: moment))
      transaction.counters.dequeued += 1
      transaction.counters.lanes.serve(row.place.lane)
      room.take(row.origin)
      owners.take(for: row.owner)
      if let origin = row.origin, room[origin] <= 0 { open.removeAll { $0 == origin } }
    }
  }

  /// Removes a row from its page, if present.
  private mutating func forget(_ row: JobRow) {
    pages[row.place]?.removeAll { $0.number == row.number }
  }

  private mutating func next(in transaction: inout WriteTransaction) throws -> JobRow? {
    let count = transaction.counters.dequeued
    if QueueOrder.isAgedTurn(after: count), let row = try oldest(in: &transaction) { return row }
    return try first(owners: QueueOrder.isOwnersTurn(after: count), in: &transaction)
  }
}

/// Queue order.
extension Dequeue {
  /// Returns the next job in round-robin order; `nil` if no job is claimable or the limit of rows
  /// is reached.
  private mutating func first(
    owners: Bool, in transaction: inout WriteTransaction
  ) throws -> JobRow? {
    while looks > 0 {
      let ready = transaction.counters.lanes.next(
        ownersFirst: owners, of: self.owners.has(for:), except: exhausted, &inspected)
      let places = Array(Set(ready + parkedPlaces(last: false, in: transaction)))
      guard let place = transaction.counters.lanes.first(of: places, owners: owners) else {
        return nil
      }
      if let row = try head(at: place, in: &transaction) { return row }
      if looks > 0 { exhausted.insert(place) }
    }
    return nil
  }

  /// Returns positions with parked jobs that may be claimable.
  private mutating func parkedPlaces(
    last: Bool, in transaction: WriteTransaction
  ) -> [Lanes.Place] {
    let places = open.flatMap {
      transaction.counters.parked.places(of: $0, ownedBy: owners.has(for:), last: last) {
        !exhausted.contains($0) && transaction.counters.lanes.stoppedLine(of: $0.lane.batch) == nil
      }
    }
    inspected += places.count
    return places
  }

  /// Returns the first claimable job of a position, ready or parked.
  private mutating func head(
    at place: Lanes.Place, in transaction: inout WriteTransaction
  ) throws -> JobRow? {
    while true {
      let ready = try firstReady(at: place, in: &transaction)
      guard looks > 0 else { return nil }
      guard let parked = try firstParked(at: place, in: &transaction),
        parked.rank < ready?.rank ?? .max
      else { return ready }
      if let row = try fetch(parked, in: &transaction) { return row }
      guard looks > 0 else { return nil }
    }
  }

  private mutating func firstReady(
    at place: Lanes.Place, in transaction: inout WriteTransaction
  ) throws -> JobRow? {
    var size = max(1, count - taken.count)
    while looks > 0 {
      if pages[place]?.isEmpty ?? true {
        guard transaction.counters.lanes.isReady(place) else { return nil }
        pages[place] = try JobRow.fetchAll(
          """
          phase = 0 AND waiting = 0 AND priority = ? AND owner = ? AND batch = ? ORDER BY rank LIMIT ?
          """, [place.priority, place.lane.owner, place.lane.batch, size], transaction.db
        ).reversed()
        size = min(128, max(16, size * 2))
      }
      guard let row = pages[place]?.last else { return nil }
      if try mayGo(row, in: &transaction) { return row }
      pages[place]?.removeLast()
    }
    return nil
  }

  /// Returns whether a job may be claimed now; otherwise changes its state to due or parked.
  private mutating func mayGo(_ row: JobRow, in transaction: inout WriteTransaction) throws -> Bool
  {
    if let notBefore = row.notBefore,
      !transaction.counters.nextDue.hasCome(notBefore, at: moment)
    {
      // The clock was set back after this job became due.
      try transaction.move(row, to: .due)
    } else if room[row.origin] <= 0 {
      try transaction.move(row, to: .parked)
    } else {
      return true
    }
    looks -= 1
    return false
  }

  /// Returns the row of a parked job; `nil` if its due time is in the future again.
  private mutating func fetch(_ head: ParkedHeads.Head, in transaction: inout WriteTransaction)
    throws -> JobRow?
  {
    guard let row = try JobRow.fetch(number: head.number, transaction.db) else {
      throw StoreError.unavailable(detail: "the row of a parked job is missing")
    }
    return try mayGo(row, in: &transaction) ? row : nil
  }

  private func firstParked(
    at place: Lanes.Place, in transaction: inout WriteTransaction
  ) throws -> ParkedHeads.Head? {
    var first: ParkedHeads.Head?
    for origin in open {
      let head = try transaction.counters.parked.head(origin, place, transaction.db)
      guard let head, head.rank < first?.rank ?? .max else { continue }
      first = head
    }
    return first
  }

  /// Returns the oldest job among the first jobs of all positions, if it has waited very long. This
  /// prevents starvation.
  private mutating func oldest(in transaction: inout WriteTransaction) throws -> JobRow? {
    var oldest: (row: JobRow, id: JobID)?
    let ready = transaction.counters.lanes.last(
      Self.maxHeads, of: owners.has(for:), except: exhausted, &inspected)
    let places = transaction.counters.lanes.sorted(
      Array(Set(ready + parkedPlaces(last: true, in: transaction))), owners: true)
    for place in places.suffix(Self.maxHeads) {
      let row = try head(at: place, in: &transaction)
      guard looks > 0 else { return nil }
      guard let row, let id = row.jobID, oldest.map({ id < $0.id }) ?? true else { continue }
      oldest = (row, id)
    }
    guard let oldest, QueueOrder.isOld(oldest.id, at: moment) else { return nil }
    return oldest.row
  }
}
