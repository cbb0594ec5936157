internal import Jobs
internal import Synchronization

/// Whose lease lasts. One process has the database to itself, so this is nowhere but in its memory: a claim of an
/// instance that isn't known here is an earlier run's, and nobody's.
final class Leases: Sendable {
  private struct State {
    var ends: [Instance: Timestamp] = [:]
    /// How often a lease has ended; an earlier run's have at the start.
    var ended = 1
    /// How many of these ends have nothing left to give back.
    var recovered = 0
  }

  private let state = Mutex(State())
  private let now: @Sendable () -> Timestamp

  /// - Parameter now: the time, by a clock that nobody sets.
  init(now: @escaping @Sendable () -> Timestamp) { self.now = now }

  func begin(_ instance: Instance, for lease: Duration) {
    state.withLock { $0.ends[instance] = now() + lease }
  }

  /// - Returns: false where its lease has ended for good.
  func renew(_ instance: Instance, for lease: Duration) -> Bool {
    state.withLock { state in
      guard state.ends[instance] != nil else { return false }
      state.ends[instance] = now() + lease
      return true
    }
  }

  func end(_ instance: Instance) {
    state.withLock { state in
      if state.ends.removeValue(forKey: instance) != nil { state.ended += 1 }
    }
  }

  /// Asked in the transaction that lets the instance hold something, so that recovering comes before or sees it.
  func check(_ instance: Instance) throws {
    let isHeld = state.withLock { state in state.ends[instance].map { $0 > now() } ?? false }
    guard isHeld else { throw StoreError.leaseLost }
  }

  /// Ends the leases whose time is over.
  /// - Returns: how often one has ended by now; nil where nothing is left to give back.
  func expire() -> Int? {
    state.withLock { state in
      let moment = now()
      let living = state.ends.filter { $0.value > moment }
      state.ended += state.ends.count - living.count
      state.ends = living
      return state.recovered < state.ended ? state.ended : nil
    }
  }

  /// Those whose lease lasts.
  var living: Set<Instance> { state.withLock { Set($0.ends.keys) } }

  /// Nothing is left of those that had ended when ``expire()`` told so many.
  func haveRecovered(_ ended: Int) { state.withLock { $0.recovered = max($0.recovered, ended) } }
}
