/// The times at which transfers are checked again, as a binary heap with the earliest first.
struct DeadlineHeap {
  typealias Entry = (at: ContinuousClock.Instant, id: UInt64)

  private var entries: [Entry] = []

  /// The earliest time.
  var next: ContinuousClock.Instant? { entries.first?.at }

  mutating func insert(_ id: UInt64, at moment: ContinuousClock.Instant) {
    entries.append((moment, id))
    var child = entries.count - 1
    while child > 0 {
      let parent = (child - 1) / 2
      guard entries[child].at < entries[parent].at else { return }
      entries.swapAt(child, parent)
      child = parent
    }
  }

  /// Removes and returns the earliest entry if it is due.
  mutating func pop(dueBy now: ContinuousClock.Instant) -> Entry? {
    guard let first = entries.first, first.at <= now else { return nil }
    entries.swapAt(0, entries.count - 1)
    entries.removeLast()
    var parent = 0
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < entries.count {
        if entries[child].at < entries[least].at { least = child }
      }
      guard least != parent else { return first }
      entries.swapAt(parent, least)
      parent = least
    }
  }
}
