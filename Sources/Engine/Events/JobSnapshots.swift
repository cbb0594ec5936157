internal import Jobs
internal import Logging
internal import Synchronization

/// The newest known states of jobs, in memory: of jobs that are loaded here and of jobs that were read lately.
///
/// The store holds the truth; responses are made from these snapshots. A state replaces another only if its version is
/// higher, so changes may arrive in any order. Reading takes one short lock and never suspends.
///
/// This is not an `LRUCache`, because jobs that are loaded, waited for or subscribed to must stay. In an `LRUCache`
/// thousands of them could gather at its end, and each insertion would have to skip them. Here they are checked once
/// for a whole generation. ``Subscribers`` knows which jobs have subscribers.
final class JobSnapshots: Sendable {
  /// Two generations of up to `capacity` jobs. When the younger one is full, the older one is dropped, except pinned
  /// jobs and jobs with subscribers.
  private struct State {
    var young: [JobID: Known] = [:]
    var old: [JobID: Known] = [:]
    var pinned: [JobID: Int] = [:]
    /// Pinned jobs that clients of another instance follow.
    var followedElsewhere: Set<JobID> = []
    var purged: Set<JobID> = []
    var purgedBefore: Set<JobID> = []
    /// Purged batches. The store deletes their jobs one after the other.
    var purgedBatches = LRUCache<BatchID, Bool>(capacity: 1_024)
    var weight = 0
    /// The weight of the jobs that were carried over into the younger generation.
    var pinnedWeight = 0
    var announced: AnnouncedChanges
    var isClosed = false
    let subscribers: Subscribers

    init(_ subscribers: Subscribers, _ rules: AnnouncementRules) {
      (self.subscribers, announced) = (subscribers, AnnouncedChanges(rules))
    }

    mutating func find(_ id: JobID, capacity: Int) -> JobSnapshot? {
      known(id, capacity: capacity)?.snapshot
    }

    mutating func known(_ id: JobID, capacity: Int) -> Known? {
      if let known = young[id] { return known }
      guard let known = old.removeValue(forKey: id) else { return nil }
      insert(known, capacity: capacity)
      return known
    }

    /// Inserts a state that was just read or changed.
    mutating func insert(_ snapshot: JobSnapshot, capacity: Int) {
      let now = ContinuousClock.now
      let isSettled = announced.isSettled(snapshot.job, at: now)
      insert(Known(snapshot: snapshot, settledAt: isSettled ? now : nil), capacity: capacity)
    }

    private mutating func insert(_ known: Known, capacity: Int) {
      let snapshot = known.snapshot
      let before = young.updateValue(known, forKey: snapshot.job.id)?.snapshot
      weight += snapshot.weight - (before?.weight ?? 0)
      // The jobs that are carried over don't count, so that each generation has room for new ones.
      guard weight > capacity + pinnedWeight else { return }
      let followed = subscribers.jobs
      let keep = old.filter { pinned[$0.key] != nil || followed.contains($0.key) }
      old = young
      young = keep
      weight = keep.values.reduce(0) { $0 + $1.snapshot.weight }
      pinnedWeight = weight
    }

    mutating func remove(_ id: JobID) {
      if let gone = young.removeValue(forKey: id) { weight -= gone.snapshot.weight }
      old[id] = nil
    }
  }

  /// A state, and when it was certainly the newest one (``AnnouncedChanges/isSettled(_:at:)``); nil: never.
  private struct Known {
    var snapshot: JobSnapshot
    var settledAt: ContinuousClock.Instant?
  }

  /// The origin of a state.
  enum Source {
    /// This process changed the job.
    case changedHere
    /// This process claimed the job. The progress that an earlier run of the job has shown is not copied.
    case claimedHere
    /// Another instance changed the job.
    case changedElsewhere
    /// The job was read, possibly unchanged.
    case read
  }

  private let state: Mutex<State>
  private let capacity: Int
  private let membership: Membership
  /// Subscribers to changes.
  let subscribers = Subscribers()

  /// - Parameter capacity: jobs of the usual size in a generation; larger ones count as several. At most twice as many
  ///   are held, in addition to jobs that are loaded or have subscribers.
  init(
    capacity: Int, membership: Membership, _ rules: AnnouncementRules = AnnouncementRules()
  ) {
    self.capacity = capacity
    self.membership = membership
    state = Mutex(State(subscribers, rules))
  }

  func peek(_ id: JobID) -> JobSnapshot? {
    state.withLock { $0.find(id, capacity: capacity) }
  }

  /// Returns a job's state if it is certainly the newest one.
  ///
  /// In a shared store that is only true of a success whose change would have been announced (``AnnouncedChanges``).
  /// Another instance may have changed any other job, also one that is loaded here, and the event may not have arrived.
  func current(_ id: JobID) -> JobSnapshot? {
    state.withLock { state in
      guard let known = state.known(id, capacity: capacity) else { return nil }
      if membership.isAlone { return known.snapshot }
      let now = ContinuousClock.now
      guard known.snapshot.job.isAnsweredFromMemory, let settled = known.settledAt,
        state.announced.isCurrent(known.snapshot.job, settled: settled, at: now),
        membership.hasLease(at: now)
      else { return nil }
      return known.snapshot
    }
  }

  /// Stops answering a job, or the jobs of a batch, from memory for a while, because they are about to be changed.
  func recordAnnouncement(of id: JobID) { state.withLock { $0.announced.add(id, at: .now) } }

  /// Stops answering from memory for a while, because announcements may have been lost.
  func recordLoss() { state.withLock { $0.announced.recordLoss(at: .now) } }

  /// Records that events arrive: all that were published before `asked` have arrived.
  func recordHeartbeat(asked: ContinuousClock.Instant) {
    state.withLock { $0.announced.recordHeartbeat(asked: asked, at: .now) }
  }

  /// Records a job's state, unless a newer one is known. A change that was made here is published to the other
  /// instances.
  /// - Returns: the newest state; nil if the job was purged.
  @discardableResult
  func publish(_ job: Job, _ source: Source = .changedHere) -> JobSnapshot? {
    let (newest, isNew) = insert(job, source)
    if isNew, source == .changedHere || source == .claimedHere {
      membership.publish(.changed(job.id))
    }
    return newest
  }

  private func insert(_ job: Job, _ source: Source) -> (newest: JobSnapshot?, isNew: Bool) {
    state.withLock { state in
      if state.purged.contains(job.id) || state.purgedBefore.contains(job.id) {
        return (nil, false)
      }
      var job = job
      let before = state.find(job.id, capacity: capacity)
      if let before {
        // The known state is the newest one if the store has no other.
        if before.job.version == job.version, source == .read {
          state.insert(before, capacity: capacity)
        }
        if before.job.version >= job.version { return (before, false) }
        if source != .claimedHere { job.copyProgress(from: before.job) }
      }
      let snapshot = JobSnapshot(job)
      state.insert(snapshot, capacity: capacity)
      if source != .read || before != nil { subscribers.recordChange(snapshot, from: before?.job) }
      return (snapshot, true)
    }
  }

  /// Records progress of a job that is loaded here. The store does not have it.
  func report(_ id: JobID, _ report: ProgressReport) {
    let told = state.withLock { state -> Job? in
      let job = change(id, &state) { $0.applyReport(report) }
      return state.followedElsewhere.contains(id) ? job : nil
    }
    if let told { publishProgress(of: told) }
  }

  /// Records progress of a job that another instance loads, with the version that clients see there.
  func report(_ id: JobID, _ report: ProgressReport, at version: Int) {
    state.withLock { state in _ = change(id, &state) { $0.applyReport(report, at: version) } }
  }

  /// Starts publishing the progress of those jobs that are loaded here, because clients of another instance follow
  /// them.
  func startPublishingProgress(of ids: [JobID]) {
    let jobs = state.withLock { state in
      let mine = ids.filter { state.pinned[$0] != nil }
      state.followedElsewhere.formUnion(mine)
      return mine.compactMap { state.find($0, capacity: capacity)?.job }
    }
    for job in jobs where job.reports > 0 { publishProgress(of: job) }
  }

  private func publishProgress(of job: Job) {
    membership.publish(.progress(job.id, version: job.version, ProgressReport(shownOf: job)))
  }

  private func change(
    _ id: JobID, _ state: inout State, _ change: (inout Job) -> Bool
  ) -> Job? {
    guard let shown = state.find(id, capacity: capacity) else { return nil }
    var job = shown.job
    guard change(&job) else { return nil }
    let snapshot = JobSnapshot(job)
    state.insert(snapshot, capacity: capacity)
    subscribers.recordChange(snapshot, from: shown.job)
    return job
  }

  /// Records that these jobs have lost an image.
  func markLost(_ image: ImageDigest, of ids: [JobID]) {
    for id in ids {
      guard var job = peek(id)?.job, job.keptImage?.keptDigest == image else { continue }
      job.markImageEvicted()
      publish(job)
    }
  }

  /// Removes jobs that were deleted from the store.
  func remove(_ ids: [JobID]) {
    state.withLock { state in for id in ids { state.remove(id) } }
    subscribers.remove(ids)
  }

  /// Removes a job that another instance changed, unless it is loaded here or has subscribers.
  /// - Returns: whether the job stays; its new state has to be read then.
  func removeUnlessInUse(_ id: JobID) -> Bool {
    state.withLock { state in
      if state.pinned[id] != nil || subscribers.follows(id) { return true }
      state.remove(id)
      return false
    }
  }

  /// After events were lost, removes all jobs that other instances may have changed, so that the next read gets them
  /// from the store.
  /// - Returns: the jobs that stay, because they are loaded here or have subscribers.
  func removeUnused() -> Set<JobID> {
    let followed = subscribers.jobs
    return state.withLock { state in
      let held = followed.union(state.pinned.keys)
      let kept = state.young.merging(state.old) { newer, _ in newer }
        .filter { held.contains($0.key) }
      (state.young, state.old) = (kept, [:])
      state.weight = kept.values.reduce(0) { $0 + $1.snapshot.weight }
      return held
    }
  }

  /// Removes a purged job for good. A state that was read before the purge and arrives later is ignored.
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

  /// Marks a batch as purged, before the store has deleted its jobs.
  func purge(batch id: BatchID) { state.withLock { _ = $0.purgedBatches.set(true, for: id) } }

  func isPurged(_ batch: BatchID) -> Bool { state.withLock { $0.purgedBatches.peek(batch) != nil } }

  /// Ends all waits and subscriptions, now and from now on.
  func close() {
    state.withLock { $0.isClosed = true }
    subscribers.close()
  }

  var isClosed: Bool { state.withLock { $0.isClosed } }

  /// Keeps the job in memory while a worker here carries it out.
  func pin(_ id: JobID) { state.withLock { $0.pinned[id, default: 0] += 1 } }
  func unpin(_ id: JobID) {
    state.withLock { state in
      let others = (state.pinned[id] ?? 1) - 1
      state.pinned[id] = others > 0 ? others : nil
      if others <= 0 { state.followedElsewhere.remove(id) }
    }
  }

  /// Whether a worker here carries out the job.
  func isPinned(_ id: JobID) -> Bool { state.withLock { $0.pinned[id] != nil } }

  /// Waits until the job meets the condition, is deleted, the deadline passes, the service stops, or the task is
  /// cancelled.
  func wait(
    for condition: WaitCondition, of id: JobID, until deadline: ContinuousClock.Instant
  ) async {
    await subscribers.wait(for: condition, of: id, until: deadline) { peek(id)?.job }
  }
}

/// Makes a job's new state known once the store has it. Readers and subscribers get the state. If the job has ended,
/// the end goes to the log, the metrics and the trace. No other code does this.
///
/// Input: a job as the store has it. Output: its snapshot, its change for the subscribers, a log line and counts. Runs
/// on the caller's thread and never waits; ``Subscribers/run()`` delivers on Swift's threads.
struct JobPublisher: Sendable {
  let snapshots: JobSnapshots
  let metrics: JobMetrics
  /// Nil if tracing is off.
  let tracer: (any JobTracer)?
  let log: Logger
  /// Called when a job with a webhook has ended.
  let onMessage: @Sendable () -> Void
  /// Called when a job has ended with its low-data image.
  let onLowData: @Sendable (Job) -> Void

  /// - Parameters:
  ///   - hasEnded: whether this change ended the job, as success, failure or cancelled.
  ///   - stages: the stages of its last try, if tracing is on.
  /// - Returns: the newest state; nil if the job was purged.
  @discardableResult
  func publish(_ job: Job, hasEnded: Bool, _ stages: [JobStage] = []) -> JobSnapshot? {
    if hasEnded { recordEnd(of: job, stages) }
    return snapshots.publish(job)
  }

  /// Records the purge of a job. An unfinished job is logged and counted as cancelled.
  func recordPurge(of job: Job, at moment: Timestamp) {
    var job = job
    if job.cancel(at: moment, keptFor: .zero) { recordEnd(of: job) }
  }

  /// Publishes a finished job whose regular image replaced the low-data one. The job is not counted again.
  func publishReplacedImage(of job: Job) {
    snapshots.publish(job)
    log.info("image replaced", metadata: metadata(of: job))
  }

  private func recordEnd(of job: Job, _ stages: [JobStage] = []) {
    metrics.finished(job)
    tracer?.recordEnd(of: job, stages: stages)
    if job.image?.variant == .lowData { onLowData(job) }
    if job.submission.webhook != nil { onMessage() }
    log.info("job finished", metadata: metadata(of: job))
  }

  private func metadata(of job: Job) -> Logger.Metadata {
    var metadata: Logger.Metadata = [
      "job": "\(job.id)", "phase": "\(job.phase.rawValue)", "bytes": "\(job.progress.completed)",
      "attempts": "\(job.attempts)",
    ]
    if job.owner != .anonymous { metadata["owner"] = "\(job.owner.name)" }
    if let batch = job.batch {
      metadata["batch"] = "\(batch.id)"
      metadata["line"] = "\(batch.line)"
    }
    if let url = job.submission.url(of: .regular) { metadata["host"] = "\(url.authority)" }
    if let cache = job.cache { metadata["cache"] = "\(cache.status.rawValue)" }
    if let failure = job.failure {
      metadata["code"] = "\(failure.code.rawValue)"
      metadata["error"] = "\(failure)"
    }
    if let started = job.startedAt, let finished = job.finishedAt {
      metadata["seconds"] = "\((finished - started).roundedSeconds)"
    }
    return metadata
  }
}
