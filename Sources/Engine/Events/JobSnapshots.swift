internal import Jobs
internal import Synchronization

/// The newest known state of jobs, in memory: of those that workers here carry, and of those asked for lately.
///
/// The store decides; answers are made from what is here. A state replaces another only when its version is
/// higher, so it doesn't matter in which order changes get here. Reading costs one short lock and never suspends.
///
/// It is no `LRUCache`: jobs that somebody carries, waits for or subscribes to stay however long nobody has asked for
/// them, and ten thousand of them at the end of that one's order would be gone past for each job that comes. Whether a
/// job has a subscriber is known to ``Subscribers`` alone. So both are asked about once for a whole generation.
final class JobSnapshots: Sendable {
  /// Two generations, each up to `capacity`: when the younger is full the older is dropped, but for what is pinned.
  private struct State {
    var young: [JobID: JobSnapshot] = [:]
    var old: [JobID: JobSnapshot] = [:]
    var pinned: [JobID: Int] = [:]
    /// Pinned ones that somebody follows through another instance.
    var followedElsewhere: Set<JobID> = []
    var purged: Set<JobID> = []
    var purgedBefore: Set<JobID> = []
    /// Whose jobs are removed one after the other, which takes a while.
    var purgedBatches = LRUCache<BatchID, Bool>(capacity: 1_024)
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

  /// How a job's state got here.
  enum Source {
    /// It was changed by this process.
    case changedHere
    /// Another one changed it.
    case changedElsewhere
    /// It was read, and may be as it was before.
    case read
  }

  private let state: Mutex<State>
  private let capacity: Int
  private let membership: Membership
  /// Who wants to know of changes.
  let subscribers = Subscribers()

  /// - Parameter capacity: jobs of the usual size in a generation, larger ones counting as several; at most twice as
  ///   many are held, and those that somebody works on or waits for.
  init(capacity: Int, membership: Membership) {
    self.capacity = capacity
    self.membership = membership
    state = Mutex(State(subscribers))
  }

  func peek(_ id: JobID) -> JobSnapshot? {
    state.withLock { $0.find(id, capacity: capacity) }
  }

  /// What is known of a job, where that can be told as it is. Of a shared store's jobs it can of those to which nothing
  /// happens any more but their removal: whatever else another instance did would be missing, to jobs that are carried
  /// here, too, until it is heard. A failed or cancelled job may be queued again.
  func current(_ id: JobID) -> JobSnapshot? {
    state.withLock { state in
      guard let snapshot = state.find(id, capacity: capacity) else { return nil }
      if membership.isAlone { return snapshot }
      return snapshot.job.isFinal && snapshot.job.phase == .success ? snapshot : nil
    }
  }

  /// Takes in a job's state, unless there is a newer one. Other instances are told of what happened here.
  /// - Returns: the newest state; nil when the job was purged.
  @discardableResult
  func publish(_ job: Job, _ source: Source = .changedHere) -> JobSnapshot? {
    let (newest, isNew) = take(job, source)
    if isNew, source == .changedHere { membership.tell(.changed(job.id)) }
    return newest
  }

  private func take(_ job: Job, _ source: Source) -> (newest: JobSnapshot?, isNew: Bool) {
    state.withLock { state in
      if state.purged.contains(job.id) || state.purgedBefore.contains(job.id) {
        return (nil, false)
      }
      var job = job
      let before = state.find(job.id, capacity: capacity)
      if let before {
        if before.job.version >= job.version { return (before, false) }
        job.keepProgress(of: before.job)
      }
      let snapshot = JobSnapshot(job)
      state.put(snapshot, capacity: capacity)
      if source != .read || before != nil { subscribers.note(snapshot, from: before?.job) }
      return (snapshot, true)
    }
  }

  /// Takes in a job's progress, which is in no store.
  func report(_ id: JobID, _ report: ProgressReport) {
    let told = state.withLock { state -> Job? in
      let job = change(id, &state) { job in
        guard job.phase == .loading else { return false }
        job.note(report)
        return true
      }
      return state.followedElsewhere.contains(id) ? job : nil
    }
    if let told { tellProgress(of: told) }
  }

  /// Takes in the progress of a job that another instance carries, at the version that is shown there.
  func report(_ id: JobID, _ report: ProgressReport, at version: Int) {
    state.withLock { state in _ = change(id, &state) { $0.note(report, at: version) } }
  }

  /// Somebody follows these jobs through another instance: of those carried here it is told of progress from now on.
  func follow(_ ids: [JobID]) {
    let jobs = state.withLock { state in
      let mine = ids.filter { state.pinned[$0] != nil }
      state.followedElsewhere.formUnion(mine)
      return mine.compactMap { state.find($0, capacity: capacity)?.job }
    }
    for job in jobs where job.reports > 0 { tellProgress(of: job) }
  }

  private func tellProgress(of job: Job) {
    membership.tell(.progress(job.id, version: job.version, ProgressReport(shownOf: job)))
  }

  private func change(
    _ id: JobID, _ state: inout State, _ change: (inout Job) -> Bool
  ) -> Job? {
    guard let shown = state.find(id, capacity: capacity) else { return nil }
    var job = shown.job
    guard change(&job) else { return nil }
    let snapshot = JobSnapshot(job)
    state.put(snapshot, capacity: capacity)
    subscribers.note(snapshot, from: shown.job)
    return job
  }

  /// Jobs have lost an image.
  func lose(_ image: ImageDigest, of ids: [JobID]) {
    for id in ids {
      guard var job = peek(id)?.job, job.keptImage?.keptDigest == image else { continue }
      job.loseImage()
      publish(job)
    }
  }

  /// Forgets jobs that the store has forgotten.
  func remove(_ ids: [JobID]) {
    state.withLock { state in for id in ids { state.remove(id) } }
    subscribers.remove(ids)
  }

  /// Forgets a job that another instance changed, unless somebody here works on it, waits for it or subscribes to it.
  /// - Returns: whether somebody does: it is to be looked up then.
  func dropUnlessHeld(_ id: JobID) -> Bool {
    state.withLock { state in
      if state.pinned[id] != nil || subscribers.follows(id) { return true }
      state.remove(id)
      return false
    }
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

  /// Has a batch's jobs be known as forgotten before they are.
  func purge(batch id: BatchID) { state.withLock { _ = $0.purgedBatches.set(true, for: id) } }

  func isPurged(_ batch: BatchID) -> Bool { state.withLock { $0.purgedBatches.peek(batch) != nil } }

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
      if others <= 0 { state.followedElsewhere.remove(id) }
    }
  }

  /// Whether a worker here carries the job.
  func isPinned(_ id: JobID) -> Bool { state.withLock { $0.pinned[id] != nil } }

  /// Waits until the job meets the condition, is gone or the time is over, the service stops, or the task is cancelled.
  func wait(
    for condition: WaitCondition, of id: JobID, until deadline: ContinuousClock.Instant
  ) async {
    await subscribers.wait(for: condition, of: id, until: deadline) { peek(id)?.job }
  }
}
