internal import Jobs
internal import Synchronization

/// Images' bytes in memory, the least recently asked for first out: the tier before the disk.
final class ImageMemory: Sendable {
  fileprivate struct Slot {
    var bytes: [UInt8]
    var used: UInt64
  }

  fileprivate struct State {
    var slots: [ImageDigest: Slot] = [:]
    /// The order of use; numbers whose image was used again since are skipped.
    var order: [(used: UInt64, digest: ImageDigest)] = []
    var first = 0
    var clock: UInt64 = 0
    var size = 0
  }

  private let capacity: Int
  private let state = Mutex(State())

  /// - Parameter capacity: in bytes.
  init(capacity: Int) { self.capacity = capacity }

  /// The largest image that is taken, so that one can't push out all others.
  var largest: Int { capacity / 8 }

  var bytes: Int { state.withLock { $0.size } }

  /// Uses that are noted: bounded by the number of images.
  var noted: Int { state.withLock { $0.order.count } }

  func holds(_ digest: ImageDigest) -> Bool { state.withLock { $0.slots[digest] != nil } }

  func bytes(of digest: ImageDigest) -> [UInt8]? {
    state.withLock { state -> [UInt8]? in
      guard let slot = state.slots[digest] else { return nil }
      state.touch(digest)
      return slot.bytes
    }
  }

  func insert(_ bytes: [UInt8], as digest: ImageDigest) {
    guard bytes.count <= largest else { return }
    state.withLock { state in
      state.remove(digest)
      state.slots[digest] = Slot(bytes: bytes, used: 0)
      state.size += bytes.count
      state.touch(digest)
      while state.size > capacity, let oldest = state.popOldest() { state.remove(oldest) }
    }
  }

  func remove(_ digest: ImageDigest) { state.withLock { $0.remove(digest) } }

  func clear() { state.withLock { $0 = State() } }
}

extension ImageMemory.State {
  fileprivate mutating func touch(_ digest: ImageDigest) {
    clock += 1
    slots[digest]?.used = clock
    order.append((clock, digest))
    // Half of it at the most is out of date.
    if order.count - first > 2 * slots.count + 64 { tidy() }
  }

  private mutating func tidy() {
    order = order[first...].filter { slots[$0.digest]?.used == $0.used }
    first = 0
  }

  fileprivate mutating func remove(_ digest: ImageDigest) {
    if let slot = slots.removeValue(forKey: digest) { size -= slot.bytes.count }
  }

  fileprivate mutating func popOldest() -> ImageDigest? {
    while first < order.count {
      let oldest = order[first]
      first += 1
      if slots[oldest.digest]?.used == oldest.used { return oldest.digest }
    }
    return nil
  }
}
