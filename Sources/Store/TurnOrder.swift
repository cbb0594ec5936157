internal import Foundation
internal import HashTreeCollections

/// Places with ready jobs in the order of their turns, so that a claim finds the next one without inspecting all of them,
/// however many queues an owner has.
struct TurnOrder: Sendable {
  /// What is compared: jobs that are loading, then the last turn.
  struct Turn: Comparable, Sendable {
    var loading = 0
    var served = 0

    static func < (a: Self, b: Self) -> Bool {
      (a.loading, a.served) < (b.loading, b.served)
    }
  }

  private struct LaneTurn: Comparable, Sendable {
    let turn: Turn
    let batch: Int64

    static func < (a: Self, b: Self) -> Bool {
      a.turn == b.turn ? a.batch < b.batch : a.turn < b.turn
    }
  }

  private struct OwnerTurn: Comparable, Sendable {
    let turn: Turn
    let owner: Data

    static func < (a: Self, b: Self) -> Bool {
      a.turn == b.turn ? a.owner.lexicographicallyPrecedes(b.owner) : a.turn < b.turn
    }
  }

  /// An owner's lanes by priority.
  private struct OwnerLanes: Sendable {
    var turn: Turn
    var levels: [SortedElements<LaneTurn>]
  }

  /// Owners whose turns are equal, and whose lanes are compared.
  private static let mostEqual = 32

  private var lanes: TreeDictionary<Data, OwnerLanes> = [:]
  private var owners = SortedElements<OwnerTurn>()
  /// Owners with ready jobs of each priority.
  private var levels: [SortedElements<OwnerTurn>]
  private let lowest: Int

  init(priorities: ClosedRange<Int>) {
    lowest = priorities.lowerBound
    levels = Array(repeating: SortedElements(), count: priorities.count)
  }

  private func level(_ priority: Int) -> Int {
    min(max(priority - lowest, 0), levels.count - 1)
  }

  func contains(owner: Data) -> Bool { lanes[owner] != nil }

  /// Adds a place that is not there.
  mutating func insert(_ place: Lanes.Place, of owner: Turn, _ lane: Turn) {
    let (level, key) = (level(place.priority), place.lane.owner)
    if lanes[key] == nil {
      lanes[key] = OwnerLanes(
        turn: owner, levels: Array(repeating: SortedElements(), count: levels.count))
      owners.insert(OwnerTurn(turn: owner, owner: key))
    }
    if lanes[key]?.levels[level].isEmpty == true {
      levels[level].insert(OwnerTurn(turn: owner, owner: key))
    }
    lanes[key]?.levels[level].insert(LaneTurn(turn: lane, batch: place.lane.batch))
  }

  /// Removes a place with the turns by which it was added.
  mutating func remove(_ place: Lanes.Place, of owner: Turn, _ lane: Turn) {
    let (level, key) = (level(place.priority), place.lane.owner)
    lanes[key]?.levels[level].remove(LaneTurn(turn: lane, batch: place.lane.batch))
    guard let rest = lanes[key], rest.levels[level].isEmpty else { return }
    levels[level].remove(OwnerTurn(turn: owner, owner: key))
    guard rest.levels.allSatisfy(\.isEmpty) else { return }
    lanes[key] = nil
    owners.remove(OwnerTurn(turn: owner, owner: key))
  }

  /// An owner's turn has changed.
  mutating func move(owner: Data, from old: Turn, to new: Turn) {
    guard old != new, let known = lanes[owner] else { return }
    lanes[owner]?.turn = new
    owners.remove(OwnerTurn(turn: old, owner: owner))
    owners.insert(OwnerTurn(turn: new, owner: owner))
    for level in levels.indices where !known.levels[level].isEmpty {
      levels[level].remove(OwnerTurn(turn: old, owner: owner))
      levels[level].insert(OwnerTurn(turn: new, owner: owner))
    }
  }

  // MARK: Whose turn it is

  /// The places one of which is next: one, or more where owners' turns are equal.
  /// - Parameters:
  ///   - ownersFirst: whether owners come before priorities.
  ///   - isMeant: whether an owner's places are.
  ///   - skipped: places that are not meant.
  ///   - inspected: grows by the places that were inspected.
  func first(
    ownersFirst: Bool, of isMeant: (Data) -> Bool, except skipped: Set<Lanes.Place>,
    _ inspected: inout Int
  ) -> [Lanes.Place] {
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
    in owners: SortedElements<OwnerTurn>, _ isMeant: (Data) -> Bool, of levels: some Sequence<Int>,
    except skipped: Set<Lanes.Place>, _ inspected: inout Int
  ) -> [Lanes.Place] {
    var places: [Lanes.Place] = []
    var turn: Turn?
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
    of owner: Data, _ levels: some Sequence<Int>, except skipped: Set<Lanes.Place>,
    _ inspected: inout Int
  ) -> Lanes.Place? {
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

  /// So many places whose turns come last, where owners come before priorities.
  /// - Parameter isMeant: whether an owner's places are.
  func last(
    _ count: Int, of isMeant: (Data) -> Bool, except skipped: Set<Lanes.Place>,
    _ inspected: inout Int
  ) -> [Lanes.Place] {
    var places: [Lanes.Place] = []
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

  private func place(_ level: Int, _ owner: Data, _ lane: LaneTurn) -> Lanes.Place {
    Lanes.Place(
      priority: level + lowest, lane: Lanes.Lane(owner: owner, batch: lane.batch))
  }
}
