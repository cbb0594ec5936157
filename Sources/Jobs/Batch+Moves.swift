/// The moves of a batch. None looks at a clock.
extension Batch {
  /// Lines were made durable: their jobs are counted by ``count(_:at:)``.
  package mutating func take(_ lines: BatchLines, at moment: Timestamp) {
    received += lines.count
    counts.rejected += lines.rejected.count
    webhook = lines.webhook ?? webhook
    content = lines.content ?? content
    receivedAt = moment
    revision += 1
  }

  /// No more lines come.
  /// - Returns: false where that was known.
  package mutating func close(at moment: Timestamp) -> Bool {
    guard state == .receiving else { return false }
    state = .running
    // The first request to an open batch may have broken off before others added lines.
    if !isOpen { content?.complete() }
    revision += 1
    settle(at: moment)
    return true
  }

  /// Its owner cancels it.
  /// - Returns: false where it was over.
  package mutating func cancel(at moment: Timestamp) -> Bool {
    guard !state.isOver else { return false }
    state = .cancelled
    isCancelling = true
    revision += 1
    settle(at: moment)
    return true
  }

  /// Whether nobody has gone on with it after so many lines, of which none is a job.
  package func isUnused(after lines: Int) -> Bool { isUntouched(after: lines) && counts.all == 0 }

  private func isUntouched(after lines: Int) -> Bool { state == .receiving && received == lines }

  /// Its owner wants nothing of it to be left, or its beginning was refused after so many lines: then it stays where
  /// somebody has gone on with it.
  package mutating func purge(refusedAfter lines: Int? = nil) -> Bool {
    guard lines.map(isUntouched) ?? true else { return false }
    isPurged = true
    isCancelling = true
    revision += 1
    return true
  }

  /// A transaction changed its jobs, and that is what came of it.
  /// - Parameter moment: where no job ended.
  package mutating func count(_ change: BatchChange, at moment: Timestamp) {
    for phase in Phase.allCases { counts[phase] += change.jobs[phase.code] }
    for (code, count) in change.codes { counts.add(count, of: code) }
    counts.bytes += change.bytes
    if change.ended > 0 { pace.add(change.ended, at: change.lastEnd ?? moment) }
    lastExpiry = [lastExpiry, change.lastExpiry].compactMap(\.self).max()
    revision += 1
    settle(at: change.lastEnd ?? moment)
  }

  /// As it is, where its jobs have come to that in so many changes: of a store that counts them beside it.
  package func counting(_ change: BatchChange, in revisions: Int) -> Batch {
    var batch = self
    batch.count(change, at: receivedAt)
    batch.revision = revision + revisions
    let ended = [Phase.success, .failure, .cancelled].reduce(0) { $0 + change.jobs[$1.code] }
    batch.pace = Pace(of: ended, from: createdAt, to: change.lastEnd ?? createdAt)
    return batch
  }

  /// As a store keeps it that counts its jobs beside it, and what they have come to.
  package func apart() -> (base: Batch, change: BatchChange) {
    var base = self
    (base.counts, base.finishedAt, base.expiresAt) = (BatchCounts(), nil, nil)
    base.counts.rejected = counts.rejected
    if state == .finished { base.state = .running }
    let change = BatchChange(
      jobs: Dictionary(uniqueKeysWithValues: Phase.allCases.map { ($0, counts[$0]) }),
      codes: Dictionary(uniqueKeysWithValues: counts.codes.map { ($0.code, $0.count) }),
      bytes: counts.bytes, lastEnd: finishedAt, lastExpiry: lastExpiry)
    return (base, change)
  }

  /// A job of it is wanted again that had ended: one that was cancelled runs then, as any other.
  package mutating func beginAnew() { if state == .cancelled, !isCancelling { state = .running } }

  /// Takes over what was done to the batch itself, and nothing of what its jobs have come to.
  package mutating func follow(_ batch: Batch) {
    // That all have ended is their doing, and of a cancelled one that none is left to be ended is for others to find.
    state = batch.state == .finished ? .running : batch.state
    (isCancelling, isPurged) = (batch.isCancelling || state == .cancelled, batch.isPurged)
    content = batch.content
    revision += 1
  }

  /// None of its jobs is to be ended any more.
  package mutating func endCancelling() { isCancelling = false }

  /// Goes by what its jobs have come to: the last one's end is its own, and one that is wanted again begins it anew.
  private mutating func settle(at moment: Timestamp) {
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

/// What clients are told.
extension Batch {
  /// What has become of its jobs. Those that are about to be ended because it was cancelled are told as if they were.
  public var shownCounts: BatchCounts {
    guard isCancelling else { return counts }
    var shown = counts
    shown[.cancelled] += counts.unfinished
    (shown[.queued], shown[.loading]) = (0, 0)
    return shown
  }

  /// How many of its jobs end a second, lately; 0 once it is over.
  public func rate(at moment: Timestamp) -> Double {
    state.isOver ? 0 : pace.rate(at: moment)
  }

  /// Seconds until the jobs that are there have ended at this rate; nil where none tells.
  public func eta(at moment: Timestamp) -> Double? {
    let rate = rate(at: moment)
    guard !state.isOver, rate > 0.001, counts.unfinished > 0 else { return nil }
    return Double(counts.unfinished) / rate
  }
}

/// What a transaction did to jobs of one batch, taken together.
package struct BatchChange: Sendable, Equatable {
  /// By ``Phase/code``.
  package private(set) var jobs = [Int](repeating: 0, count: Phase.allCases.count)
  package private(set) var codes: [FailureCode: Int] = [:]
  package private(set) var bytes = 0
  package private(set) var ended = 0
  /// Jobs that had ended and are wanted again.
  package private(set) var begunAgain = 0
  package private(set) var lastEnd: Timestamp?
  package private(set) var lastExpiry: Timestamp?

  /// A job as far as a batch counts it.
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

    /// That job.
    package init(_ job: Job) {
      self.init(
        phase: job.phase, code: job.failure?.code, bytes: job.image?.bytes ?? 0,
        finishedAt: job.finishedAt, expiresAt: job.expiresAt)
    }
  }

  /// Nothing.
  package init() {}

  /// What many changes have come to, as a store sums them up.
  package init(
    jobs: [Phase: Int], codes: [FailureCode: Int], bytes: Int, lastEnd: Timestamp?,
    lastExpiry: Timestamp?
  ) {
    for (phase, count) in jobs { self.jobs[phase.code] = count }
    (self.codes, self.bytes) = (codes, bytes)
    (self.lastEnd, self.lastExpiry) = (lastEnd, lastExpiry)
  }

  /// A job came, changed or went; nil where there is none before or after. One that goes unfinished counts as cancelled,
  /// any other as what it had come to.
  package mutating func move(from old: Member?, to new: Member?) {
    if new == nil, old?.phase.isFinished != false { return }
    if let old { add(-1, old) }
    guard let new else {
      jobs[Phase.cancelled.code] += 1
      return
    }
    add(1, new)
    guard new.phase.isFinished else {
      if old?.phase.isFinished == true { begunAgain += 1 }
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
