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

  private struct QueueRank: Comparable, Sendable {
    let rank: Rank
    let batch: Int64

    static func < (a: Self, b: Self) -> Bool {
      a.rank == b.rank ? a.batch < b.batch : a.rank < b.rank
    }
  }

  private struct OwnerRank: Comparable, Sendable {
    let rank: Rank
    let owner: Owner

    static func < (a: Self, b: Self) -> Bool {
      a.rank == b.rank ? a.owner.name < b.owner.name : a.rank < b.rank
    }
  }

  /// An owner's queues by priority.
  private struct OwnerQueues: Sendable {
    var rank: Rank
    var levels: [SortedElements<QueueRank>]
  }

  /// The maximum number of owners of equal rank whose queues are compared.
  private static let maxEqual = 32

  private var queues: TreeDictionary<Owner, OwnerQueues> = [:]
  private var owners = SortedElements<OwnerRank>()
  /// The owners with ready jobs, by priority.
  private var levels = Array(
    repeating: SortedElements<OwnerRank>(), count: Priority.allCases.count)

  func contains(owner: Owner) -> Bool { queues[owner] != nil }

  /// Adds a position that is not present.
  mutating func insert(_ position: QueuePosition, of owner: Rank, _ queue: Rank) {
    let (level, key) = (position.priority, position.queue.owner)
    if queues[key] == nil {
      queues[key] = OwnerQueues(
        rank: owner, levels: Array(repeating: SortedElements(), count: levels.count))
      owners.insert(OwnerRank(rank: owner, owner: key))
    }
    if queues[key]?.levels[level].isEmpty == true {
      levels[level].insert(OwnerRank(rank: owner, owner: key))
    }
    queues[key]?.levels[level].insert(QueueRank(rank: queue, batch: position.queue.batch))
  }

  /// Removes a position; the ranks must be those with which it was added.
  mutating func remove(_ position: QueuePosition, of owner: Rank, _ queue: Rank) {
    let (level, key) = (position.priority, position.queue.owner)
    queues[key]?.levels[level].remove(QueueRank(rank: queue, batch: position.queue.batch))
    guard let rest = queues[key], rest.levels[level].isEmpty else { return }
    levels[level].remove(OwnerRank(rank: owner, owner: key))
    guard rest.levels.allSatisfy(\.isEmpty) else { return }
    queues[key] = nil
    owners.remove(OwnerRank(rank: owner, owner: key))
  }

  /// Updates the order after an owner's rank changed.
  mutating func updateRank(of: Owner, from old: Rank, to new: Rank) {
    guard old != new, let known = queues[of] else { return }
    queues[of]?.rank = new
    owners.remove(OwnerRank(rank: old, owner: of))
    owners.insert(OwnerRank(rank: new, owner: of))
    for level in levels.indices where !known.levels[level].isEmpty {
      levels[level].remove(OwnerRank(rank: old, owner: of))
      levels[level].insert(OwnerRank(rank: new, owner: of))
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
      let positions = first(
        in: levels[level], isMeant, of: CollectionOfOne(level), except: skipped, &inspected)
      if !positions.isEmpty { return positions }
    }
    return []
  }

  private func first(
    in owners: SortedElements<OwnerRank>, _ isMeant: (Owner) -> Bool, of levels: some Sequence<Int>,
    except skipped: Set<QueuePosition>, _ inspected: inout Int
  ) -> [QueuePosition] {
    var positions: [QueuePosition] = []
    var rank: Rank?
    for owner in owners.ascending {
      if let rank, rank != owner.rank || positions.count >= Self.maxEqual { break }
      guard isMeant(owner.owner),
        let position = first(of: owner.owner, levels, except: skipped, &inspected)
      else { continue }
      rank = owner.rank
      positions.append(position)
    }
    return positions
  }

  private func first(
    of owner: Owner, _ levels: some Sequence<Int>, except skipped: Set<QueuePosition>,
    _ inspected: inout Int
  ) -> QueuePosition? {
    guard let queues = queues[owner] else { return nil }
    for level in levels {
      for queue in queues.levels[level].ascending {
        inspected += 1
        let position = position(level, owner, queue)
        if !skipped.contains(position) { return position }
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
    var positions: [QueuePosition] = []
    for owner in owners.descending where isMeant(owner.owner) {
      guard let queues = queues[owner.owner] else { continue }
      for level in levels.indices {
        for queue in queues.levels[level].descending {
          guard positions.count < count else { return positions }
          inspected += 1
          let position = position(level, owner.owner, queue)
          if !skipped.contains(position) { positions.append(position) }
        }
      }
    }
    return positions
  }

  private func position(_ level: Int, _ owner: Owner, _ queue: QueueRank) -> QueuePosition {
    QueuePosition(
      priority: level, queue: JobQueueName(owner: owner, batch: queue.batch))
  }
}

/// A sorted set stored in chunks. A change copies one chunk, even while copies of the set exist.
package struct SortedElements<Element: Comparable & Sendable>: Sendable {
  /// No chunk is empty, and the chunks are in ascending order.
  private var chunks: [[Element]] = []
  private static var most: Int { 64 }

  package init() {}

  package var isEmpty: Bool { chunks.isEmpty }
  package var last: Element? { chunks.last?.last }

  /// The elements in ascending order.
  var ascending: some Sequence<Element> { chunks.lazy.joined() }
  /// The elements in descending order.
  var descending: some Sequence<Element> { chunks.reversed().lazy.map { $0.reversed() }.joined() }

  /// Inserts an element that the set does not contain.
  package mutating func insert(_ element: Element) {
    guard !chunks.isEmpty else { return chunks = [[element]] }
    let chunk = min(self.chunk(of: element), chunks.count - 1)
    chunks[chunk].insert(element, at: Self.index(of: element, in: chunks[chunk]))
    guard chunks[chunk].count > Self.most else { return }
    let rest = Array(chunks[chunk].suffix(Self.most / 2))
    chunks[chunk].removeLast(rest.count)
    chunks.insert(rest, at: chunk + 1)
  }

  /// Removes an element, if the set contains it.
  package mutating func remove(_ element: Element) {
    let chunk = self.chunk(of: element)
    guard chunk < chunks.count else { return }
    let index = Self.index(of: element, in: chunks[chunk])
    guard index < chunks[chunk].count, chunks[chunk][index] == element else { return }
    chunks[chunk].remove(at: index)
    if chunks[chunk].isEmpty { chunks.remove(at: chunk) }
  }

  /// The index of the first chunk that may contain the element; the number of chunks if there is
  /// none.
  private func chunk(of element: Element) -> Int {
    Self.first(in: 0..<chunks.count) { chunks[$0][chunks[$0].count - 1] >= element }
  }

  private static func index(of element: Element, in chunk: [Element]) -> Int {
    first(in: 0..<chunk.count) { chunk[$0] >= element }
  }

  /// Binary search: the first index that meets the condition, or the end of the range.
  private static func first(in range: Range<Int>, where condition: (Int) -> Bool) -> Int {
    var (low, high) = (range.lowerBound, range.upperBound)
    while low < high {
      let middle = (low + high) / 2
      if condition(middle) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}
