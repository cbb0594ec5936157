internal import Jobs
internal import Synchronization

/// Keys under which the cache's store was found to have nothing, and which nothing was stored under since by this
/// service: so a job's load need not ask again what its submission asked.
///
/// Another service that shares the store may have stored something meanwhile: a miss is known for a few seconds.
final class CacheMisses: Sendable {
  typealias Instant = ContinuousClock.Instant

  private enum Known {
    /// The store is being asked, the last time under this number.
    case asked(UInt64)
    case missing(since: Instant)
    /// Stored since.
    case unknown
  }

  private struct State {
    var keys = LRUCache<Fingerprint, Known>(capacity: 4_096)
    var count: UInt64 = 0
  }

  private static let memory = Duration.seconds(10)
  private let state = Mutex(State())

  /// Whether nothing is stored under any of the keys.
  func know(_ keys: [Fingerprint], at now: Instant = .now) -> Bool {
    state.withLock { state in
      keys.allSatisfy { key in
        guard case .missing(let since) = state.keys.value(for: key) else { return false }
        return since.duration(to: now) < Self.memory
      }
    }
  }

  /// The store is about to be asked for the keys.
  /// - Returns: a number for ``noteFound(_:of:as:at:)``.
  func beginLooking(for keys: [Fingerprint]) -> UInt64 {
    state.withLock { state in
      state.count += 1
      for key in keys { state.keys.set(.asked(state.count), for: key) }
      return state.count
    }
  }

  /// The store has answered with so many entries for each key. A key that was stored under meanwhile, or asked for
  /// again, is left as it is.
  func noteFound(_ counts: [Int], of keys: [Fingerprint], as number: UInt64, at now: Instant = .now)
  {
    state.withLock { state in
      for (key, count) in zip(keys, counts) where count == 0 {
        guard case .asked(number) = state.keys.value(for: key) else { continue }
        state.keys.set(.missing(since: now), for: key)
      }
    }
  }

  /// Something was stored.
  func noteStored(_ key: Fingerprint) { _ = state.withLock { $0.keys.set(.unknown, for: key) } }
}
