internal import HashTreeCollections

/// Positions with ready jobs in round-robin order. A claim finds the next one without comparing all
/// of them, even if an owner has many queues.
struct RoundRobinOrder: Sendable {
  /// The round-robin order: fewer loading jobs first, then the longest time since the last claim.
  struct Rank: Comparable, Sendable {
    var loading = 0
    var served = 0

    static func < (a: Self, b: Self) -> Bool {
      (a.loading, a.served) < (b.loading, b.served)
    }
  }

  private struct LaneTurn: Comparable, Sendable {
    let turn: Rank
    let batch: Int64

    static func < (a: Self, b: Self) -> Bool {
      a.turn == b.turn ? a.batch < b.batch : a.turn < b.turn
    }
  }

  private struct OwnerTurn: Comparable, Sendable {
    let turn: Rank
    let owner: Owner

    static func < (a: Self, b: Self) -> Bool {
      a.turn == b.turn ? a.owner.name < b.owner.name : a.turn < b.turn
    }
  }

  /// An owner's queues by priority.
  private struct OwnerLanes: Sendable {
    var turn: Rank
    var levels: [SortedElements<LaneTurn>]
  }

  /// The maximum number of owners of equal rank whose queues are compared.
  private static let mostEqual = 32

  private var lanes: TreeDictionary<Owner, OwnerLanes> = [:]
  private var owners = SortedElements<OwnerTurn>()
  /// The owners with ready jobs, by priority.
  private var levels: [SortedElements<OwnerTurn>]
  private let lowest: Int

  init(priorities: ClosedRange<Int>) {
    lowest = priorities.lowerBound
    levels = Array(repeating: SortedElements(), count: priorities.count)
  }

  private func level(_ priority: Int) -> Int {
    min(max(priority - lowest, 0), levels.count - 1)
  }

  func contains(owner: Owner) -> Bool { lanes[owner] != nil }

  /// Adds a position that is not present.
  mutating func insert(_ place: QueuePosition, of owner: Rank, _ lane: Rank) {
    let (level, key) = (level(place.priority), place.queue.owner)
    if lanes[key] == nil {
      lanes[key] = OwnerLanes(
        turn: owner, levels: Array(repeating: SortedElements(), count: levels.count))
      owners.insert(OwnerTurn(turn: owner, owner: key))
    }
    if lanes[key]?.levels[level].isEmpty == true {
      levels[level].insert(OwnerTurn(turn: owner, owner: key))
    }
    lanes[key]?.levels[level].insert(LaneTurn(turn: lane, batch: place.queue.batch))
  }

  /// Removes a position; the ranks must be those with which it was added.
  mutating func remove(_ place: QueuePosition, of owner: Rank, _ lane: Rank) {
    let (level, key) = (level(place.priority), place.queue.owner)
    lanes[key]?.levels[level].remove(LaneTurn(turn: lane, batch: place.queue.batch))
    guard let rest = lanes[key], rest.levels[level].isEmpty else { return }
    levels[level].remove(OwnerTurn(turn: owner, owner: key))
    guard rest.levels.allSatisfy(\.isEmpty) else { return }
    lanes[key] = nil
    owners.remove(OwnerTurn(turn: owner, owner: key))
  }

  /// Updates the order after an owner's rank changed.
  mutating func updateRank(of: Owner, from old: Rank, to new: Rank) {
    guard old != new, let known = lanes[of] else { return }
    lanes[of]?.turn = new
    owners.remove(OwnerTurn(turn: old, owner: of))
    owners.insert(OwnerTurn(turn: new, owner: of))
    for level in levels.indices where !known.levels[level].isEmpty {
      levels[level].remove(OwnerTurn(turn: old, owner: of))
      levels[level].insert(OwnerTurn(turn: new, owner: of))
    }
  }

  // MARK: Round robin

  /// Returns candidates for the next position: one, or several if owners' ranks are equal.
  /// - Parameters:
  ///   - ownersFirst: whether to compare owners before priorities.
  ///   - isMeant: whether to consider an owner's positions.
  ///   - skipped: positions to ignore.
  ///   - inspected: incremented by the number of compared positions.
  func first(
    ownersFirst: Bool, of isMeant: (Owner) -> Bool, except skipped: Set<QueuePosition>,
    _ inspected: inout Int
  ) -> [QueuePosition] {
    guard !ownersFirst else {
      return first(
        in: owners, isMeant, of: levels.indices.reversed(), except: skipped, &inspected)
    }
    for level in levels.indices.reversed() where !levels[level].isEmpty {
      let places = first(
        in: levels[level], isMeant, of: CollectionOfOne(level), except: skipped, &inspected)
      if !places.isEmpty { return places }
    }
    return []
  }

  private func first(
    in owners: SortedElements<OwnerTurn>, _ isMeant: (Owner) -> Bool, of levels: some Sequence<Int>,
    except skipped: Set<QueuePosition>, _ inspected: inout Int
  ) -> [QueuePosition] {
    var places: [QueuePosition] = []
    var turn: Rank?
    for owner in owners.ascending {
      if let turn, turn != owner.turn || places.count >= Self.mostEqual { break }
      guard isMeant(owner.owner),
        let place = first(of: owner.owner, levels, except: skipped, &inspected)
      else { continue }
      turn = owner.turn
      places.append(place)
    }
    return places
  }

  private func first(
    of owner: Owner, _ levels: some Sequence<Int>, except skipped: Set<QueuePosition>,
    _ inspected: inout Int
  ) -> QueuePosition? {
    guard let lanes = lanes[owner] else { return nil }
    for level in levels {
      for lane in lanes.levels[level].ascending {
        inspected += 1
        let place = place(level, owner, lane)
        if !skipped.contains(place) { return place }
      }
    }
    return nil
  }

  /// Returns the last `count` positions in the order that compares owners before priorities.
  /// - Parameter isMeant: whether to consider an owner's positions.
  func last(
    _ count: Int, of isMeant: (Owner) -> Bool, except skipped: Set<QueuePosition>,
    _ inspected: inout Int
  ) -> [QueuePosition] {
    var places: [QueuePosition] = []
    for owner in owners.descending where isMeant(owner.owner) {
      guard let lanes = lanes[owner.owner] else { continue }
      for level in levels.indices {
        for lane in lanes.levels[level].descending {
          guard places.count < count else { return places }
          inspected += 1
          let place = place(level, owner.owner, lane)
          if !skipped.contains(place) { places.append(place) }
        }
      }
    }
    return places
  }

  private func place(_ level: Int, _ owner: Owner, _ lane: LaneTurn) -> QueuePosition {
    QueuePosition(
      priority: level + lowest, queue: JobQueueName(owner: owner, batch: lane.batch))
  }
}
