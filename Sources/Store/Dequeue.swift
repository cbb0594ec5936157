internal import Foundation
internal import GRDB
internal import Jobs

/// Hands over jobs in the order of the queue, each where its origin and its owner have room.
///
/// A job whose origin has none when its turn comes is parked: out of the queue, so that it is looked at once and not by
/// every claim after that. Each look at a lane then sees its first job and the first parked one of each origin that
/// has room again, which is known without asking the database unless that one changed. A parked job keeps its rank, so
/// that its place among the others is the same as if it had never left. Owners without room are passed over as a whole.
struct Dequeue {
  /// Jobs that one transaction looks at in vain: parking them is work, and everybody else's changes wait for it.
  static let maxLooks = 2_000
  /// Lanes among whose heads the oldest job is looked for.
  private static let maxHeads = 32

  private let instance: Instance
  private let moment: Timestamp
  private let count: Int
  /// What is left once these jobs were taken.
  private(set) var room: OriginRoom
  private(set) var owners: OwnerRoom<Data>
  /// Those taken, as they then are.
  private(set) var taken: [JobRow] = []
  private var looks = Self.maxLooks
  /// The next jobs of lanes, the first one last, those that have room before them not yet known.
  private var pages: [Lanes.Place: [JobRow]] = [:]
  /// Where nothing is left that may go.
  private var exhausted: Set<Lanes.Place> = []
  /// Origins with room that may have parked jobs.
  private var open: [String]
  /// Places that were inspected to find whose turn it is.
  private(set) var inspected = 0

  /// Whether all was taken that there is, or that was asked for.
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

  /// Takes jobs until there are enough, no more, or too many were looked at in vain.
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

  /// Takes a row off its page, if it is there.
  private mutating func forget(_ row: JobRow) {
    pages[row.place]?.removeAll { $0.number == row.number }
  }

  private mutating func next(in transaction: inout WriteTransaction) throws -> JobRow? {
    let count = transaction.counters.dequeued
    if QueueOrder.isAgedTurn(after: count), let row = try oldest(in: &transaction) { return row }
    return try first(owners: QueueOrder.isOwnersTurn(after: count), in: &transaction)
  }
}

/// The order of the queue.
extension Dequeue {
  /// Whose turn it is; nil when nobody has a job that may go, or too many were looked at.
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

  /// Where parked jobs may go: of each owner some places at each origin.
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

  /// The first job of a place that may go, ready or parked.
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

  /// Whether a queued job may be taken now; one that may not waits for what it lacks.
  private mutating func mayGo(_ row: JobRow, in transaction: inout WriteTransaction) throws -> Bool
  {
    if let notBefore = row.notBefore,
      !transaction.counters.nextDue.hasCome(notBefore, at: moment)
    {
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

  /// That nobody waits for ever: of the jobs at the heads the one submitted first, if that is long ago.
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
