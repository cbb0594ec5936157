internal import Synchronization

/// The newest known state of jobs, in memory: of those that workers here carry, and of those asked for lately.
///
/// The store is the truth; this is what answers are made from. A state replaces another only when its version is
/// higher, so it doesn't matter in which order changes get here. Reading costs one short lock and never suspends.
final class JobBoard: Sendable {
  private struct Waiter {
    let goal: WaitGoal
    let continuation: CheckedContinuation<Void, Never>
  }

  /// Two generations, each up to `capacity`: when the younger is full the older is dropped, but for what is pinned.
  private struct State {
    var young: [JobID: JobSnapshot] = [:]
    var old: [JobID: JobSnapshot] = [:]
    var pinned: Set<JobID> = []
    var waiters: [JobID: [UInt64: Waiter]] = [:]
    var waiterCount: UInt64 = 0
    var removals: UInt64 = 0

    mutating func find(_ id: JobID, capacity: Int) -> JobSnapshot? {
      if let snapshot = young[id] { return snapshot }
      guard let snapshot = old.removeValue(forKey: id) else { return nil }
      put(snapshot, capacity: capacity)
      return snapshot
    }

    mutating func put(_ snapshot: JobSnapshot, capacity: Int) {
      young[snapshot.job.id] = snapshot
      guard young.count > capacity else { return }
      let keep = old.filter { pinned.contains($0.key) || waiters[$0.key] != nil }
      old = young
      young = keep
    }

    mutating func takeWaiters(metBy job: Job) -> [Waiter] {
      guard var waiting = waiters[job.id] else { return [] }
      let met = waiting.filter { $0.value.goal.isMet(by: job) }
      for token in met.keys { waiting[token] = nil }
      waiters[job.id] = waiting.isEmpty ? nil : waiting
      return Array(met.values)
    }
  }

  private let state = Mutex(State())
  private let capacity: Int

  /// - Parameter capacity: jobs in a generation; at most twice as many are held.
  init(capacity: Int) { self.capacity = capacity }

  func peek(_ id: JobID) -> JobSnapshot? {
    state.withLock { $0.find(id, capacity: capacity) }
  }

  /// Shows a state, unless a newer one is shown already.
  /// - Returns: what is shown now.
  @discardableResult
  func publish(_ job: Job) -> JobSnapshot {
    let (shown, met) = state.withLock { state -> (JobSnapshot, [Waiter]) in
      if let shown = state.find(job.id, capacity: capacity), shown.job.version >= job.version {
        return (shown, [])
      }
      let snapshot = JobSnapshot(job)
      state.put(snapshot, capacity: capacity)
      return (snapshot, state.takeWaiters(metBy: job))
    }
    for waiter in met { waiter.continuation.resume() }
    return shown
  }

  /// Shows a job's change that the store does not know of yet: what its worker reports.
  func report(_ id: JobID, _ report: RunReport) {
    let met = state.withLock { state -> [Waiter] in
      guard let shown = state.find(id, capacity: capacity), shown.job.phase == .loading else {
        return []
      }
      var job = shown.job
      job.note(report, shown: job.version)
      state.put(JobSnapshot(job), capacity: capacity)
      return state.takeWaiters(metBy: job)
    }
    for waiter in met { waiter.continuation.resume() }
  }

  /// How many jobs were removed so far: what is read from the store before a removal must not be shown after it.
  var removals: UInt64 { state.withLock { $0.removals } }

  /// Shows what was read from the store while nothing was removed since `removals` was read.
  func fill(_ job: Job, readAfter removals: UInt64) -> JobSnapshot {
    let isCurrent = state.withLock { $0.removals == removals }
    return isCurrent ? publish(job) : JobSnapshot(job)
  }

  func remove(_ ids: [JobID]) {
    let gone = state.withLock { state -> [Waiter] in
      state.removals += 1
      return ids.flatMap { id -> [Waiter] in
        state.young[id] = nil
        state.old[id] = nil
        return (state.waiters.removeValue(forKey: id) ?? [:]).values.map { $0 }
      }
    }
    for waiter in gone { waiter.continuation.resume() }
  }

  /// Keeps the job in memory for as long as a worker carries it.
  func pin(_ id: JobID) { state.withLock { _ = $0.pinned.insert(id) } }
  func unpin(_ id: JobID) { state.withLock { _ = $0.pinned.remove(id) } }

  /// Returns when the job meets the goal, is removed, or the task is cancelled.
  func wait(for goal: WaitGoal, of id: JobID) async {
    let token = state.withLock { state in
      state.waiterCount += 1
      return state.waiterCount
    }
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let isMet = state.withLock { state in
          guard !Task.isCancelled, let shown = state.find(id, capacity: capacity),
            !goal.isMet(by: shown.job)
          else { return true }
          state.waiters[id, default: [:]][token] = Waiter(goal: goal, continuation: continuation)
          return false
        }
        if isMet { continuation.resume() }
      }
    } onCancel: {
      let waiter = state.withLock { state -> Waiter? in
        let waiter = state.waiters[id]?.removeValue(forKey: token)
        if state.waiters[id]?.isEmpty == true { state.waiters[id] = nil }
        return waiter
      }
      waiter?.continuation.resume()
    }
  }
}
