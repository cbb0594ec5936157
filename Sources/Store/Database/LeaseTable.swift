internal import Jobs
internal import Synchronization

/// The leases of this process's instances. Only one process uses the database, so they are held in
/// memory. A claim of an unknown instance belongs to an earlier run and is invalid.
final class LeaseTable: Sendable {
  private struct State {
    var ends: [Instance: Timestamp] = [:]
    /// The number of leases that have ended, plus one for those of earlier runs.
    var ended = 1
    /// The number of ended leases whose jobs were all requeued.
    var recovered = 0
  }

  private let state = Mutex(State())
  private let now: @Sendable () -> Timestamp

  /// - Parameter now: a monotonic clock.
  init(now: @escaping @Sendable () -> Timestamp) { self.now = now }

  func begin(_ instance: Instance, for lease: Duration) {
    state.withLock { $0.ends[instance] = now() + lease }
  }

  /// - Returns: `false` if the lease has ended.
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

  /// Throws `.leaseLost` if the lease has ended. Called in the transaction that makes a claim, so
  /// that a recovery runs before it or sees the claim.
  func check(_ instance: Instance) throws {
    let isHeld = state.withLock { state in state.ends[instance].map { $0 > now() } ?? false }
    guard isHeld else { throw StoreError.leaseLost }
  }

  /// Ends expired leases.
  /// - Returns: the number of ended leases; `nil` if all of their jobs were requeued.
  func expire() -> Int? {
    state.withLock { state in
      let moment = now()
      let living = state.ends.filter { $0.value > moment }
      state.ended += state.ends.count - living.count
      state.ends = living
      return state.recovered < state.ended ? state.ended : nil
    }
  }

  /// The instances with a lease.
  var active: Set<Instance> { state.withLock { Set($0.ends.keys) } }

  /// Records that all jobs of the first `ended` ended leases were requeued.
  func recordRecovered(_ ended: Int) { state.withLock { $0.recovered = max($0.recovered, ended) } }
}
