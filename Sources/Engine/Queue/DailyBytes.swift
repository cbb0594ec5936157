internal import Jobs
internal import Logging
internal import Synchronization

/// Counts the bytes fetched from origins per owner and UTC day, for owners whose tokens limit them.
///
/// Once a second an instance adds its counts to the store and reads the sums of all instances. So an owner can exceed
/// its limit by the bytes of about one second, and by the jobs that were accepted before it was reached.
final class DailyBytes: Sendable {
  private struct State {
    var day = 0
    /// Sums of all instances, as last read from the store.
    var known: [Owner: Int] = [:]
    /// Bytes that are not in the store yet. Only owners that are in this dictionary are counted.
    var pending: [Owner: Int] = [:]
    /// Owners in `pending` whose counts are to be saved or read at the next ``save(in:at:_:)``.
    var due: Set<Owner> = []

    mutating func startDay(_ day: Int) {
      guard day != self.day else { return }
      (self.day, known) = (day, [:])
      for owner in pending.keys { pending[owner] = 0 }
    }
  }

  private let state: Mutex<State>

  /// - Parameter owners: counted from the start. Other owners are counted from their first check on.
  init(of owners: Set<Owner>) {
    let pending = Dictionary(uniqueKeysWithValues: owners.map { ($0, 0) })
    state = Mutex(State(pending: pending, due: owners))
  }

  /// Counts bytes of a transfer. If jobs of several owners shared it, each owner is charged for all bytes, once.
  func add(_ charges: [Owner: Int], at moment: Timestamp) {
    for (owner, count) in charges { add(count, for: owner, at: moment) }
  }

  func add(_ count: Int, for owner: Owner, at moment: Timestamp) {
    state.withLock { state in
      state.startDay(moment.day)
      guard let before = state.pending[owner] else { return }
      state.pending[owner] = before + count
      state.due.insert(owner)
    }
  }

  /// - Throws: `.dailyBytesExceeded` if the owner has reached its limit for today.
  func check(_ caller: Caller, at moment: Timestamp) throws(JobsError) {
    if let refusal = refusal(of: caller, at: moment) { throw refusal }
  }

  /// Returns the error that ``check(_:at:)`` throws; nil if the owner may fetch more.
  func refusal(of caller: Caller, at moment: Timestamp) -> JobsError? {
    guard let limit = caller.limits.maxBytesPerDay else { return nil }
    let had = state.withLock { state in
      state.startDay(moment.day)
      let pending = state.pending[caller.owner] ?? 0
      state.pending[caller.owner] = pending
      state.due.insert(caller.owner)
      return pending + (state.known[caller.owner] ?? 0)
    }
    return had < limit ? nil : .dailyBytesExceeded(for: Timestamp(day: moment.day + 1) - moment)
  }

  /// Adds the pending counts to the store, and reads the sums of all instances.
  func save(in store: any JobRecords, at moment: Timestamp, _ log: Logger) async {
    let (day, came) = state.withLock { state in
      state.startDay(moment.day)
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
      log.error("failed to save the bytes fetched per owner", metadata: ["error": "\(error)"])
      state.withLock { state in
        if state.day == day { state.pending.merge(came) { $0 + $1 } }
        state.due.formUnion(came.keys)
      }
    }
  }
}
