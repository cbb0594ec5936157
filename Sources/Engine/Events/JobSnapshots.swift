internal import Jobs
internal import Synchronization

/// The newest known state of jobs, in memory: of those that workers here carry, and of those asked for lately.
///
/// The store decides; answers are made from what is here. A state replaces another only when its version is
/// higher, so it doesn't matter in which order changes get here. Reading costs one short lock and never suspends.
final class JobSnapshots: Sendable {
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
    let subscribers: Subscribers

    init(_ subscribers: Subscribers) { self.subscribers = subscribers }

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
      let followed = subscribers.jobs
      let keep = old.filter { pinned[$0.key] != nil || followed.contains($0.key) }
      old = young
      young = keep
      weight = keep.values.reduce(0) { $0 + $1.weight }
      pinnedWeight = weight
    }

    mutating func remove(_ id: JobID) {
      if let gone = young.removeValue(forKey: id) { weight -= gone.weight }
      old[id] = nil
    }
  }

  private let state: Mutex<State>
  private let capacity: Int
  /// Who wants to know of changes.
  let subscribers = Subscribers()

  /// - Parameter capacity: jobs of the usual size in a generation, larger ones counting as several; at most twice as
  ///   many are held, and those that somebody works on or waits for.
  init(capacity: Int) {
    self.capacity = capacity
    state = Mutex(State(subscribers))
  }

  func peek(_ id: JobID) -> JobSnapshot? {
    state.withLock { $0.find(id, capacity: capacity) }
  }

  /// Takes in a job's state, unless there is a newer one.
  /// - Parameter isNews: whether something happened to the job; false where it was only read.
  /// - Returns: the newest state; nil when the job was purged.
  @discardableResult
  func publish(_ job: Job, isNews: Bool = true) -> JobSnapshot? {
    state.withLock { state -> JobSnapshot? in
      if state.purged.contains(job.id) || state.purgedBefore.contains(job.id) { return nil }
      var job = job
      let before = state.find(job.id, capacity: capacity)
      if let before {
        if before.job.version >= job.version { return before }
        job.keepProgress(of: before.job)
      }
      let snapshot = JobSnapshot(job)
      state.put(snapshot, capacity: capacity)
      if isNews || before != nil { subscribers.note(snapshot, from: before?.job) }
      return snapshot
    }
  }

  /// Takes in a job's progress, which is in no store.
  func report(_ id: JobID, _ report: ProgressReport) {
    state.withLock { state in
      guard let shown = state.find(id, capacity: capacity), shown.job.phase == .loading else {
        return
      }
      var job = shown.job
      job.note(report)
      let snapshot = JobSnapshot(job)
      state.put(snapshot, capacity: capacity)
      subscribers.note(snapshot, from: shown.job)
    }
  }

  /// Jobs have lost an image.
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
    state.withLock { state in for id in ids { state.remove(id) } }
    subscribers.remove(ids)
  }

  /// Forgets what other instances may have changed: whoever asks for it next gets what the store has.
  /// - Returns: the jobs that stay, as somebody works on them, waits for them or subscribes to them.
  func dropUnheld() -> Set<JobID> {
    let followed = subscribers.jobs
    return state.withLock { state in
      let held = followed.union(state.pinned.keys)
      let kept = state.young.merging(state.old) { newer, _ in newer }
        .filter { held.contains($0.key) }
      (state.young, state.old) = (kept, [:])
      state.weight = kept.values.reduce(0) { $0 + $1.weight }
      return held
    }
  }

  /// Forgets a job for good: a state that was read or changed before, and comes only now, is not taken in either.
  func purge(_ id: JobID) {
    state.withLock { state in
      state.purged.insert(id)
      if state.purged.count > capacity {
        state.purgedBefore = state.purged
        state.purged = []
      }
      state.remove(id)
    }
    subscribers.remove([id])
  }

  /// Ends all waits and subscriptions, now and from now on.
  func close() {
    state.withLock { $0.isClosed = true }
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

  /// Waits until the job meets the condition, is gone or the time is over, the service stops, or the task is cancelled.
  func wait(
    for condition: WaitCondition, of id: JobID, until deadline: ContinuousClock.Instant
  ) async {
    await subscribers.wait(for: condition, of: id, until: deadline) { peek(id)?.job }
  }
}
