internal import Jobs
internal import Logging
internal import Synchronization

/// What came from origins today, by UTC, for owners whose tokens bound that. The store adds up what all instances tell it, once
/// a second: so much may come beyond the bound, and what was taken in before it was reached.
final class DailyBytes: Sendable {
  private struct State {
    var day = 0
    /// In the store, as it told last.
    var known: [Owner: Int] = [:]
    /// What the store wasn't told of yet. Of owners that are not in it nothing is counted.
    var pending: [Owner: Int] = [:]
    /// Those of them that the store is to be told of, or asked for.
    var due: Set<Owner> = []

    mutating func turn(to day: Int) {
      guard day != self.day else { return }
      (self.day, known) = (day, [:])
      for owner in pending.keys { pending[owner] = 0 }
    }
  }

  private let state: Mutex<State>

  /// - Parameter owners: whose bytes are counted from the beginning; others' from when they first ask.
  init(of owners: Set<Owner>) {
    let pending = Dictionary(uniqueKeysWithValues: owners.map { ($0, 0) })
    state = Mutex(State(pending: pending, due: owners))
  }

  /// Bytes came for owners' jobs. Each owner whose jobs shared a transfer pays all of it, once.
  func came(_ charges: [Owner: Int], at moment: Timestamp) {
    for (owner, count) in charges { came(count, for: owner, at: moment) }
  }

  /// Bytes came for an owner's job.
  func came(_ count: Int, for owner: Owner, at moment: Timestamp) {
    state.withLock { state in
      state.turn(to: moment.day)
      guard let before = state.pending[owner] else { return }
      state.pending[owner] = before + count
      state.due.insert(owner)
    }
  }

  /// - Throws: `.bytesSpent` where the owner has had all that it may have today.
  func check(_ caller: Caller, at moment: Timestamp) throws(JobsError) {
    if let refusal = refusal(of: caller, at: moment) { throw refusal }
  }

  /// What ``check(_:at:)`` throws; nil: nothing.
  func refusal(of caller: Caller, at moment: Timestamp) -> JobsError? {
    guard let limit = caller.limits.maxBytesPerDay else { return nil }
    let had = state.withLock { state in
      state.turn(to: moment.day)
      let pending = state.pending[caller.owner] ?? 0
      state.pending[caller.owner] = pending
      state.due.insert(caller.owner)
      return pending + (state.known[caller.owner] ?? 0)
    }
    return had < limit ? nil : .bytesSpent(for: Timestamp(day: moment.day + 1) - moment)
  }

  /// Tells the store what came, and hears what came elsewhere.
  func save(in store: any JobRecords, at moment: Timestamp, _ log: Logger) async {
    let (day, came) = state.withLock { state in
      state.turn(to: moment.day)
      let came = state.pending.filter { state.due.contains($0.key) }
      for owner in came.keys { state.pending[owner] = 0 }
      state.due = []
      return (state.day, came)
    }
    guard !came.isEmpty else { return }
    do throws(StoreError) {
      let known = try await store.addBytes(came, on: day)
      state.withLock { state in
        if state.day == day { state.known.merge(known) { $1 } }
      }
    } catch {
      log.error("bytes of owners were not counted", metadata: ["error": "\(error)"])
      state.withLock { state in
        if state.day == day { state.pending.merge(came) { $0 + $1 } }
        state.due.formUnion(came.keys)
      }
    }
  }
}
