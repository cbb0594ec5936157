/// State changes of a batch. None of them reads a clock: the caller passes the moment.
extension Batch {
  /// Adds lines that are durable. ``applyChange(_:at:)`` counts their jobs.
  package mutating func addLines(_ lines: BatchLines, at moment: Timestamp) {
    received += lines.count
    counts.rejected += lines.rejected.count
    webhook = lines.webhook ?? webhook
    content = lines.content ?? content
    receivedAt = moment
    revision += 1
  }

  /// Ends the receiving of lines.
  /// - Returns: false if the batch was closed before.
  package mutating func close(at moment: Timestamp) -> Bool {
    guard state == .receiving else { return false }
    state = .running
    // An open batch keeps the content of its first request, which may have broken off before other requests
    // added lines.
    if !isOpen { content?.complete() }
    revision += 1
    updateState(at: moment)
    return true
  }

  /// Cancels the batch.
  /// - Returns: false if the batch was finished or cancelled already.
  package mutating func cancel(at moment: Timestamp) -> Bool {
    guard !state.isOver else { return false }
    state = .cancelled
    isCancelling = true
    revision += 1
    updateState(at: moment)
    return true
  }

  /// Whether no later request continued the batch after these `lines`, and none of the lines is a job.
  package func isUnused(after lines: Int) -> Bool { isUntouched(after: lines) && counts.all == 0 }

  private func isUntouched(after lines: Int) -> Bool { state == .receiving && received == lines }

  /// Marks the batch as purged.
  /// - Parameter lines: The number of lines after which the first request was refused. The batch stays if a
  ///   later request continued or closed it. Nil purges it in any state.
  /// - Returns: false if the batch stays.
  package mutating func purge(refusedAfter lines: Int? = nil) -> Bool {
    guard lines.map(isUntouched) ?? true else { return false }
    isPurged = true
    isCancelling = true
    revision += 1
    return true
  }

  /// Applies the effect of one transaction on the batch's jobs.
  /// - Parameter moment: The time of the change if no job ended in it.
  package mutating func applyChange(_ change: BatchChange, at moment: Timestamp) {
    for phase in Phase.allCases { counts[phase] += change.jobs[phase.code] }
    for (code, count) in change.codes { counts.add(count, of: code) }
    counts.bytes += change.bytes
    if change.ended > 0 { pace.add(change.ended, at: change.lastEnd ?? moment) }
    lastExpiry = [lastExpiry, change.lastExpiry].compactMap(\.self).max()
    revision += 1
    updateState(at: change.lastEnd ?? moment)
  }

  /// Returns the batch with the changes of its jobs applied, for a store that keeps these counts in another
  /// table.
  /// - Parameter revisions: The number of changes, which is added to the revision.
  package func applyingChange(_ change: BatchChange, revisions: Int) -> Batch {
    var batch = self
    batch.applyChange(change, at: receivedAt)
    batch.revision = revision + revisions
    let ended = [Phase.success, .failure, .cancelled].reduce(0) { $0 + change.jobs[$1.code] }
    batch.pace = Pace(of: ended, from: createdAt, to: change.lastEnd ?? createdAt)
    return batch
  }

  /// Resumes a cancelled batch because one of its jobs was queued again. That job runs like any other.
  package mutating func resume() { if state == .cancelled, !isCancelling { state = .running } }

  /// Copies what was done to the batch itself (state, cancelling, purge, content) from `batch`, but no job
  /// counts.
  package mutating func copyState(from batch: Batch) {
    // The job counts decide whether the batch is finished. A cancelled batch stays `isCancelling` until a
    // later step finds no unfinished job.
    state = batch.state == .finished ? .running : batch.state
    (isCancelling, isPurged) = (batch.isCancelling || state == .cancelled, batch.isPurged)
    content = batch.content
    revision += 1
  }

  /// Records that no job of the batch has to be cancelled any more.
  package mutating func finishCancelling() { isCancelling = false }

  /// Sets the state from the job counts. The batch finishes when its last job ends, and runs again when a job
  /// is queued again.
  private mutating func updateState(at moment: Timestamp) {
    if counts.unfinished > 0 {
      guard state == .finished || state == .cancelled && !isCancelling else { return }
      (state, finishedAt, expiresAt) = (.running, nil, nil)
    } else if state != .receiving {
      if state == .running { state = .finished }
      if !isPurged { isCancelling = false }
      finishedAt = finishedAt ?? moment
      expiresAt = max(lastExpiry ?? moment, moment + retention)
    }
  }
}

/// What clients see of a batch.
extension Batch {
  /// The counts that clients see. While the batch is being cancelled, unfinished jobs already count as
  /// cancelled.
  package var shownCounts: BatchCounts {
    guard isCancelling else { return counts }
    var shown = counts
    shown[.cancelled] += counts.unfinished
    (shown[.queued], shown[.loading]) = (0, 0)
    return shown
  }

  /// Jobs that end per second, measured over the last five to ten seconds; 0 once the batch is over.
  package func rate(at moment: Timestamp) -> Double {
    state.isOver ? 0 : pace.rate(at: moment)
  }

  /// Seconds until all present jobs have ended at the current rate; nil if the rate is unknown or almost
  /// zero.
  package func eta(at moment: Timestamp) -> Double? {
    let rate = rate(at: moment)
    guard !state.isOver, rate > 0.001, counts.unfinished > 0 else { return nil }
    return Double(counts.unfinished) / rate
  }
}

/// The effect of one transaction, or of several, on the jobs of one batch.
package struct BatchChange: Sendable, Equatable {
  /// The change of the number of jobs in each phase, indexed by ``Phase/code``.
  package private(set) var jobs = [Int](repeating: 0, count: Phase.allCases.count)
  package private(set) var codes: [FailureCode: Int] = [:]
  package private(set) var bytes = 0
  package private(set) var ended = 0
  /// Finished jobs that were queued again.
  package private(set) var requeued = 0
  package private(set) var lastEnd: Timestamp?
  package private(set) var lastExpiry: Timestamp?

  /// The properties of a job that its batch counts.
  package struct Member: Sendable, Equatable {
    let phase: Phase
    let code: FailureCode?
    let bytes: Int
    let finishedAt: Timestamp?
    let expiresAt: Timestamp?

    package init(
      phase: Phase, code: FailureCode?, bytes: Int, finishedAt: Timestamp?, expiresAt: Timestamp?
    ) {
      (self.phase, self.code, self.bytes) = (phase, code, bytes)
      (self.finishedAt, self.expiresAt) = (finishedAt, expiresAt)
    }

    package init(_ job: Job) {
      self.init(
        phase: job.phase, code: job.failure?.code, bytes: job.image?.bytes ?? 0,
        finishedAt: job.finishedAt, expiresAt: job.expiresAt)
    }
  }

  /// No change.
  package init() {}

  /// The sum of many changes, as a store adds them up.
  package init(
    jobs: [Phase: Int], codes: [FailureCode: Int], bytes: Int, lastEnd: Timestamp?,
    lastExpiry: Timestamp?
  ) {
    for (phase, count) in jobs { self.jobs[phase.code] = count }
    (self.codes, self.bytes) = (codes, bytes)
    (self.lastEnd, self.lastExpiry) = (lastEnd, lastExpiry)
  }

  /// Records a change of one job. `old` is nil for a new job, `new` is nil for a deleted one. A job that is
  /// deleted before it finished counts as cancelled. A finished job keeps its count after it is deleted.
  package mutating func recordChange(from old: Member?, to new: Member?) {
    if new == nil, old?.phase.isFinished != false { return }
    if let old { add(-1, old) }
    guard let new else {
      jobs[Phase.cancelled.code] += 1
      return
    }
    add(1, new)
    guard new.phase.isFinished else {
      if old?.phase.isFinished == true { requeued += 1 }
      return
    }
    if old?.phase.isFinished != true { ended += 1 }
    lastEnd = [lastEnd, new.finishedAt].compactMap(\.self).max()
    lastExpiry = [lastExpiry, new.expiresAt].compactMap(\.self).max()
  }

  private mutating func add(_ count: Int, _ member: Member) {
    jobs[member.phase.code] += count
    if let code = member.code { codes[code, default: 0] += count }
    if member.phase == .success { bytes += count * member.bytes }
  }
}
