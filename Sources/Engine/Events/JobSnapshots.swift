internal import Jobs
internal import Synchronization

/// The newest known state of jobs, in memory: of those that workers here carry, and of those asked for lately.
///
/// The store is the truth; this is what answers are made from. A state replaces another only when its version is
/// higher, so it doesn't matter in which order changes get here. Reading costs one short lock and never suspends.
final class JobSnapshots: Sendable {
  private struct Waiter {
    let goal: WaitCondition
    let continuation: CheckedContinuation<Void, Never>
  }

  /// Two generations, each up to `capacity`: when the younger is full the older is dropped, but for what is pinned.
  private struct State {
    var young: [JobID: JobSnapshot] = [:]
    var old: [JobID: JobSnapshot] = [:]
    var pinned: [JobID: Int] = [:]
    var purged: Set<JobID> = []
    var purgedBefore: Set<JobID> = []
    var weight = 0
    /// What the younger one began with, because it must stay.
    var pinnedWeight = 0
    var isClosed = false
    var waiters: [JobID: [UInt64: Waiter]] = [:]
    var waiterCount: UInt64 = 0

    mutating func find(_ id: JobID, capacity: Int) -> JobSnapshot? {
      if let snapshot = young[id] { return snapshot }
      guard let snapshot = old.removeValue(forKey: id) else { return nil }
      put(snapshot, capacity: capacity)
      return snapshot
    }

    mutating func put(_ snapshot: JobSnapshot, capacity: Int) {
      let before = young.updateValue(snapshot, forKey: snapshot.job.id)
      weight += snapshot.weight - (before?.weight ?? 0)
      // Beyond what stays in any case, so that a generation is worth its making.
      guard weight > capacity + pinnedWeight else { return }
      let keep = old.filter { pinned[$0.key] != nil || waiters[$0.key] != nil }
      old = young
      young = keep
      weight = keep.values.reduce(0) { $0 + $1.weight }
      pinnedWeight = weight
    }

    mutating func remove(_ id: JobID) -> [Waiter] {
      if let gone = young.removeValue(forKey: id) { weight -= gone.weight }
      old[id] = nil
      return (waiters.removeValue(forKey: id) ?? [:]).values.map { $0 }
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
  /// Who is told of changes.
  let subscribers = Subscribers()

  /// - Parameter capacity: jobs of the usual size in a generation, larger ones counting as several; at most twice as
  ///   many are held, and those that somebody works on or waits for.
  init(capacity: Int) { self.capacity = capacity }

  func peek(_ id: JobID) -> JobSnapshot? {
    state.withLock { $0.find(id, capacity: capacity) }
  }

  /// Whether a job, given as the store has it, is at a version that its owner named; nil: any will do. What is shown of a
  /// loading job is ahead of the store by its progress.
  func isAt(_ version: Int?, _ job: Job) -> Bool {
    guard let version else { return true }
    return version == max(job.version, peek(job.id)?.job.version ?? 0)
  }

  /// Shows a state, unless a newer one is shown already.
  /// - Parameter isNews: whether something happened to the job; false where it was only read.
  /// - Returns: what is shown now; nil when the job was purged.
  @discardableResult
  func publish(_ job: Job, isNews: Bool = true) -> JobSnapshot? {
    let (shown, met) = state.withLock { state -> (JobSnapshot?, [Waiter]) in
      if state.purged.contains(job.id) || state.purgedBefore.contains(job.id) { return (nil, []) }
      var job = job
      let before = state.find(job.id, capacity: capacity)
      if let before {
        if before.job.version >= job.version { return (before, []) }
        job.keepProgress(of: before.job)
      }
      let snapshot = JobSnapshot(job)
      state.put(snapshot, capacity: capacity)
      if isNews || before != nil { subscribers.note(snapshot, from: before?.job) }
      return (snapshot, state.takeWaiters(metBy: job))
    }
    for waiter in met { waiter.continuation.resume() }
    return shown
  }

  /// Shows a job's change that the store does not know of yet: what its worker reports.
  func report(_ id: JobID, _ report: ProgressReport) {
    let met = state.withLock { state -> [Waiter] in
      guard let shown = state.find(id, capacity: capacity), shown.job.phase == .loading else {
        return []
      }
      var job = shown.job
      job.note(report, shown: job.version)
      let snapshot = JobSnapshot(job)
      state.put(snapshot, capacity: capacity)
      subscribers.note(snapshot, from: shown.job)
      return state.takeWaiters(metBy: job)
    }
    for waiter in met { waiter.continuation.resume() }
  }

  /// Shows that jobs have lost an image.
  func lose(_ image: ImageDigest, of ids: [JobID]) {
    for id in ids {
      guard var job = peek(id)?.job, job.image?.digest == image, job.image?.isKept == true else {
        continue
      }
      job.loseImage()
      publish(job)
    }
  }

  /// Forgets jobs that the store has forgotten.
  func remove(_ ids: [JobID]) {
    let waiting = state.withLock { state in ids.flatMap { state.remove($0) } }
    for waiter in waiting { waiter.continuation.resume() }
    subscribers.forget(ids)
  }

  /// Forgets what somebody else may have changed: whoever asks for it next is given what the store has.
  /// - Returns: the jobs that stay, as somebody works on them, waits for them or is told of them.
  func dropUnheld() -> Set<JobID> {
    let told = subscribers.jobs
    return state.withLock { state in
      let held = told.union(state.pinned.keys).union(state.waiters.keys)
      let kept = state.young.merging(state.old) { newer, _ in newer }
        .filter { held.contains($0.key) }
      (state.young, state.old) = (kept, [:])
      state.weight = kept.values.reduce(0) { $0 + $1.weight }
      return held
    }
  }

  /// Forgets a job for good: what was read or changed before and comes only now is not shown either.
  func purge(_ id: JobID) {
    let waiting = state.withLock { state in
      state.purged.insert(id)
      if state.purged.count > capacity {
        state.purgedBefore = state.purged
        state.purged = []
      }
      return state.remove(id)
    }
    for waiter in waiting { waiter.continuation.resume() }
    subscribers.forget([id])
  }

  /// Ends all waiting and listening, now and from now on.
  func close() {
    let waiting = state.withLock { state in
      state.isClosed = true
      defer { state.waiters = [:] }
      return state.waiters.values.flatMap(\.values)
    }
    for waiter in waiting { waiter.continuation.resume() }
    subscribers.close()
  }

  var isClosed: Bool { state.withLock { $0.isClosed } }

  /// Keeps the job in memory for as long as a worker carries it.
  func pin(_ id: JobID) { state.withLock { $0.pinned[id, default: 0] += 1 } }
  func unpin(_ id: JobID) {
    state.withLock { state in
      let others = (state.pinned[id] ?? 1) - 1
      state.pinned[id] = others > 0 ? others : nil
    }
  }

  /// Returns when the job meets the goal, is removed, or the task is cancelled.
  func wait(for goal: WaitCondition, of id: JobID) async {
    let token = state.withLock { state in
      state.waiterCount += 1
      return state.waiterCount
    }
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let isMet = state.withLock { state in
          guard !Task.isCancelled, !state.isClosed, let shown = state.find(id, capacity: capacity),
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
