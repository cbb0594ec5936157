internal import Jobs
internal import Synchronization

/// Remembers cache keys that were looked up and not found, so that a job's load need not repeat the lookup of its
/// submission.
///
/// An entry is forgotten when this instance stores a response under the key. Another instance may have stored one
/// meanwhile, so a miss is remembered for ten seconds only.
final class CacheMisses: Sendable {
  typealias Instant = ContinuousClock.Instant

  private enum KeyState {
    /// A lookup with this number is under way.
    case lookingUp(UInt64)
    case missing(since: Instant)
    /// A response was stored after the lookup began.
    case unknown
  }

  private struct State {
    var keys = LRUCache<Fingerprint, KeyState>(capacity: 4_096)
    var count: UInt64 = 0
  }

  private static let memory = Duration.seconds(10)
  private let state = Mutex(State())

  /// Returns whether none of the keys has a stored response.
  func areMissing(_ keys: [Fingerprint], at now: Instant = .now) -> Bool {
    state.withLock { state in
      keys.allSatisfy { key in
        guard case .missing(let since) = state.keys.value(for: key) else { return false }
        return since.duration(to: now) < Self.memory
      }
    }
  }

  /// Records that a lookup of these keys begins.
  /// - Returns: the number to pass to ``recordLookup(_:of:as:at:)``.
  func beginLookup(of keys: [Fingerprint]) -> UInt64 {
    state.withLock { state in
      state.count += 1
      for key in keys { state.keys.set(.lookingUp(state.count), for: key) }
      return state.count
    }
  }

  /// Records the number of entries that a lookup found for each key. Ignores keys that were stored or looked up again
  /// since it began.
  func recordLookup(
    _ counts: [Int], of keys: [Fingerprint], as number: UInt64, at now: Instant = .now
  ) {
    state.withLock { state in
      for (key, count) in zip(keys, counts) where count == 0 {
        guard case .lookingUp(number) = state.keys.value(for: key) else { continue }
        state.keys.set(.missing(since: now), for: key)
      }
    }
  }

  /// Records that a response was stored under the key.
  func recordStored(_ key: Fingerprint) { _ = state.withLock { $0.keys.set(.unknown, for: key) } }
}
