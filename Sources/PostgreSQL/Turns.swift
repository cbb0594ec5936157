internal import Jobs

/// Jobs that are served in the order in which they came: an owner's single ones, or a batch's.
struct QueueLane: Hashable, Sendable {
  let owner: [UInt8]
  /// 0: single jobs.
  let batch: Int64

  /// An order where no other tells one.
  func isBefore(_ other: QueueLane) -> Bool {
    owner == other.owner ? batch < other.batch : owner.lexicographicallyPrecedes(other.owner)
  }
}

/// A lane's jobs of one priority.
struct QueuePlace: Hashable, Sendable {
  let priority: Int
  let lane: QueueLane
}

/// When each lane had its turn last, counted in turns: each instance knows of its own alone, which is near enough, as
/// what is loading comes first and is known of all.
struct ServedLanes: Sendable {
  private(set) var last: [QueueLane: Int] = [:]
  private var turns = 0

  mutating func serve(_ lane: QueueLane) {
    turns += 1
    // Who has long had none needs no note of when.
    if last.count > 4_096 { last = last.filter { $0.value > turns - 2_048 } }
    last[lane] = turns
  }
}

/// Whose turn it is (``QueueTurn``), as jobs are handed over one after the other.
struct Turns: Sendable {
  private var served: ServedLanes
  private var lastOfOwner: [[UInt8]: Int] = [:]
  private var loading: [QueueLane: Int]
  private var loadingOfOwner: [[UInt8]: Int] = [:]

  /// - Parameter loading: how many jobs of each lane are.
  init(loading: [QueueLane: Int], served: ServedLanes) {
    (self.loading, self.served) = (loading, served)
    for (lane, count) in loading { loadingOfOwner[lane.owner, default: 0] += count }
    for (lane, turn) in served.last {
      lastOfOwner[lane.owner] = max(turn, lastOfOwner[lane.owner] ?? 0)
    }
  }

  /// A job of the lane is handed over.
  mutating func take(_ lane: QueueLane) {
    loading[lane, default: 0] += 1
    loadingOfOwner[lane.owner, default: 0] += 1
    served.serve(lane)
    lastOfOwner[lane.owner] = served.last[lane]
  }

  /// Whose turn is next among some of the places.
  /// - Parameter owners: whether owners come before priorities.
  func first(of some: [Int], among places: [QueuePlace], owners: Bool) -> Int? {
    guard var first = some.first, some.count > 1 else { return some.first }
    var best = turn(of: places[first])
    for index in some.dropFirst() {
      let turn = turn(of: places[index])
      let isBefore =
        turn.comesBefore(best, owners: owners)
        ?? places[index].lane.isBefore(places[first].lane)
      if isBefore { (first, best) = (index, turn) }
    }
    return first
  }

  private func turn(of place: QueuePlace) -> QueueTurn {
    let lane = place.lane
    return QueueTurn(
      priority: place.priority,
      owner: (loadingOfOwner[lane.owner] ?? 0, lastOfOwner[lane.owner] ?? 0),
      lane: (loading[lane] ?? 0, served.last[lane] ?? 0))
  }
}

/// Ready jobs at one place, as far as they were looked at.
struct LanePage: Sendable {
  let place: QueuePlace
  /// The first one, which need not have been looked at.
  let head: (id: JobID, rank: Int64)
  /// In their order.
  var jobs: [QueuedJob] = []
  /// Whether others may follow.
  var isCut = true
}

/// How many jobs of each place are worth a look, as it is told beforehand whose turns come.
struct ClaimPlan: Sendable {
  let turns: Turns
  let owners: OwnerRoom<[UInt8]>
  /// Jobs handed over before.
  let before: Int
  let moment: Timestamp
  /// So many turns are gone through; of more the others are taken to be like these.
  private static let most = 128

  init(
    _ turns: Turns, owners: OwnerRoom<[UInt8]>, after before: Int, at moment: Timestamp
  ) {
    (self.turns, self.owners, self.before, self.moment) = (turns, owners, before, moment)
  }

  /// - Returns: for each of the pages how many jobs it would be good to have there.
  func wanted(_ count: Int, of pages: [LanePage]) -> [Int] {
    var wanted = [Int](repeating: 0, count: pages.count)
    var open = pages.indices.filter { pages[$0].isCut || !pages[$0].jobs.isEmpty }
    if open.count == 1 { wanted[open[0]] = count }
    guard open.count > 1 else { return wanted }
    let places = pages.map(\.place)
    var (turns, owners, steps) = (turns, owners, 0)
    while steps < min(count, Self.most) {
      let turn = before + steps
      let next =
        oldest(of: open.filter { wanted[$0] == 0 }, pages, at: turn)
        ?? turns.first(of: open, among: places, owners: QueueOrder.isOwnersTurn(after: turn))
      guard let next else { break }
      steps += 1
      wanted[next] += 1
      turns.take(places[next].lane)
      owners.take(for: places[next].lane.owner)
      let isThrough = !pages[next].isCut && wanted[next] >= pages[next].jobs.count
      open.removeAll { isThrough && $0 == next || !owners.has(for: places[$0].lane.owner) }
    }
    // One more, so that it is known what comes behind those that are taken: it may be the oldest of all.
    return wanted.map { $0 == 0 ? 0 : ($0 * count + steps - 1) / steps + 1 }
  }

  /// Only what is at the head now is known to be old.
  private func oldest(of untouched: [Int], _ pages: [LanePage], at turn: Int) -> Int? {
    guard QueueOrder.isAgedTurn(after: turn) else { return nil }
    let oldest = untouched.min { pages[$0].head.id < pages[$1].head.id }
    return oldest.flatMap { QueueOrder.isOld(pages[$0].head.id, at: moment) ? $0 : nil }
  }
}
