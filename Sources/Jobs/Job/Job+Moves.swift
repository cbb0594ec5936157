/// State changes of a job. Each one updates phase, times and revision together. None of them reads a clock:
/// the caller passes the moment.
extension Job {
  /// A worker of `instance` starts the job: `queued` to `loading`.
  package mutating func start(at moment: Timestamp, by instance: Instance = .none) {
    if pending == nil {
      timings = Timings()
      timings.queued = max(.zero, moment - max(notBefore ?? createdAt, createdAt))
      progress = Progress()
    }
    startedAt = startedAt ?? moment
    notBefore = nil
    if countsAsTry {
      tries += 1
      lastFailure = nil
    }
    revise(by: instance)
    enter(.loading)
  }

  /// Whether starting the job counts as a new try. The alternatives of a job belong to the try that reached
  /// them.
  private var countsAsTry: Bool { target.isFirst || pending != nil }

  /// Applies a progress report of a worker in this process. The store does not record it.
  /// - Returns: false if the job is not loading, or already shows later progress: several threads report the progress
  ///   of a load, so an earlier report may arrive after a later one.
  @discardableResult
  package mutating func applyReport(_ report: ProgressReport) -> Bool {
    guard phase == .loading, !report.precedes(ProgressReport(shownOf: self)) else { return false }
    applyLastReport(report)
    count(report: reports + 1)
    return true
  }

  /// Applies a progress report of a worker in another process, made at `version`. Keeps this process's number
  /// of previews, because previews exist only in the other process.
  /// - Returns: false if the version is not newer or belongs to another revision.
  package mutating func applyReport(_ report: ProgressReport, at version: Int) -> Bool {
    guard phase == .loading, isUnchanged(since: [version]), version > self.version else {
      return false
    }
    let own = previews
    applyLastReport(report)
    previews = own
    count(report: reports + version - self.version)
    return true
  }

  /// Applies the worker's last report, before the change that ends its work.
  package mutating func applyLastReport(_ report: ProgressReport) {
    guard phase == .loading else { return }
    progress = report.progress
    attempts = max(attempts, report.attempts)
    previews = report.previews
    timings.merge(report.timings)
  }

  /// Copies the progress of a loading job from the copy in memory, because the store does not have it.
  package mutating func copyProgress(from shown: Job?) {
    guard let shown, phase == .loading, shown.phase == .loading, shown.tries == tries,
      ProgressReport(shownOf: self).precedes(ProgressReport(shownOf: shown))
    else { return }
    progress = shown.progress
    attempts = shown.attempts
    timings = shown.timings
    previews = shown.previews
  }

  /// Ends the job as `success`. Its image was decoded and stored, either now or by an earlier job whose
  /// response is cached.
  ///
  /// - Parameters:
  ///   - cache: Nil for sources other than URLs.
  ///   - deliveries: The deliveries that were made.
  package mutating func succeed(
    with image: StoredImage, cache: CacheOutcome?, deliveries: [Delivered] = [],
    at moment: Timestamp, keptFor retention: Duration
  ) {
    self.image = image
    self.deliveries = deliveries
    progress.completed = image.bytes
    progress.total = image.bytes
    finish(as: .success, at: moment, keptFor: retention)
    self.cache = cache
  }

  /// Saves the loaded image while variants or deliveries are still to be done. The job stays `loading`.
  package mutating func setPending(_ pending: PendingResult) {
    self.pending = pending
    (progress.completed, progress.total) = (pending.image.bytes, pending.image.bytes)
    revise()
  }

  /// Puts a job with a pending result back into the queue, not to be started before `moment`: `loading` to
  /// `queued`.
  package mutating func postpone(until moment: Timestamp) {
    requeue()
    notBefore = moment
  }

  /// Ends the job with an image from the cache: `queued` to `success`.
  package mutating func succeedFromCache(
    with image: StoredImage, _ outcome: CacheOutcome, at moment: Timestamp,
    keptFor retention: Duration
  ) {
    startedAt = startedAt ?? moment
    timings.queued = moment - createdAt
    succeed(with: image, cache: outcome, at: moment, keptFor: retention)
  }

  /// Replaces the low-data image with the regular one. Sets a later modification date than before, whatever
  /// the origin says, because a client that sends only `If-Modified-Since` must notice the change.
  ///
  /// - Parameters:
  ///   - deliveries: The deliveries of the regular image, which replace the earlier ones.
  ///   - requests: The number of requests sent to the origin for it.
  package mutating func replaceImage(
    with image: StoredImage, cache: CacheOutcome?, deliveries: [Delivered] = [], requests: Int = 0
  ) {
    guard phase == .success else { return }
    var image = image
    if let before = self.image, before.digest != image.digest {
      image.modifiedAt = max(image.modifiedAt, before.modifiedAt + .seconds(1))
    }
    self.image = image
    self.cache = cache
    self.deliveries = deliveries
    attempts += requests
    target = .regular
    progress = Progress(completed: image.bytes, total: image.bytes)
    revise()
  }

  /// Keeps the low-data image because the regular one could not be loaded. Records the requests, and the
  /// deliveries that were made nevertheless.
  package mutating func keepImage(deliveries: [Delivered], requests: Int) {
    guard phase == .success else { return }
    self.deliveries = deliveries
    attempts += requests
    revise()
  }

  /// Ends the job as `failure`.
  package mutating func fail(
    _ failure: JobFailure, at moment: Timestamp, keptFor retention: Duration
  ) {
    self.failure = failure
    finish(as: .failure, at: moment, keptFor: retention)
  }

  /// Ends the job as `cancelled`.
  /// - Returns: false if it had finished before.
  package mutating func cancel(at moment: Timestamp, keptFor retention: Duration) -> Bool {
    guard !phase.isFinished else { return false }
    finish(as: .cancelled, at: moment, keptFor: retention)
    return true
  }

  /// Queues a finished job again, beginning with the URL `first`.
  /// - Returns: false if nothing has to be fetched, because the job is not finished or its image is still
  ///   kept.
  package mutating func fetchAgain(at moment: Timestamp, from first: URLCandidate) -> Bool {
    switch phase {
    case .queued, .loading: return false
    case .success where image?.isKept == true: return false
    case .success, .failure, .cancelled: break
    }
    failure = nil
    image = nil
    pending = nil
    deliveries = []
    cache = nil
    finishedAt = nil
    expiresAt = nil
    tries = 0
    target = first
    progress = Progress()
    notBefore = moment
    move(to: .queued)
    return true
  }

  /// Queues the job for another try, beginning with the URL `first` and not before `moment`: `loading` to
  /// `queued`. A job with a pending result continues from that result.
  package mutating func retry(
    after failure: JobFailure, from first: URLCandidate, notBefore moment: Timestamp
  ) {
    lastFailure = failure
    notBefore = moment
    if pending == nil { target = first }
    move(to: .queued)
  }

  /// Continues the try with the next URL, because the current one failed: `loading` to `queued`.
  ///
  /// - Parameter failure: The failure that decides whether and when there is another try, out of all failures
  ///   of this try.
  package mutating func continueTry(with next: URLCandidate, after failure: JobFailure) {
    lastFailure = failure
    target = next
    pending = nil
    move(to: .queued)
  }

  /// Undoes the start, because the service stops or the worker was lost: `loading` to `queued`. Does not
  /// count as a try.
  package mutating func requeue() {
    if countsAsTry { tries = max(0, tries - 1) }
    move(to: .queued)
  }

  /// Changes the priority or the tags; nil keeps the current value.
  /// - Returns: false if nothing changed.
  package mutating func edit(priority: Priority?, tags: [String]?) -> Bool {
    let tags = tags ?? self.tags
    guard priority ?? self.priority != self.priority || !tags.areSameTags(as: self.tags) else {
      return false
    }
    self.priority = priority ?? self.priority
    self.tags = tags
    #if DEBUG
      if PlantedFault.reusedVersion.isPlanted { return true }
    #endif
    revise()
    return true
  }

  /// Whether clients have seen a newer state of the job, or another phase at the same revision. This happens
  /// when a crash of the store undid a change.
  package func isBehind(_ shown: Job) -> Bool {
    revision < shown.revision || revision == shown.revision && phase != shown.phase
  }

  /// Raises the revision above the one that clients have seen, so that they accept this state as newer.
  /// - Returns: false if it is newer already.
  package mutating func raiseRevision(above shown: Job) -> Bool {
    guard isBehind(shown) else { return false }
    revise(above: shown.revision)
    return true
  }

  /// Records that the image was evicted. An unfinished job then loads it again.
  package mutating func markImageEvicted() {
    image?.isKept = false
    pending = nil
    revise()
  }

  private mutating func finish(as phase: Phase, at moment: Timestamp, keptFor retention: Duration) {
    finishedAt = moment
    expiresAt = moment + retention
    notBefore = nil
    lastFailure = nil
    pending = nil
    if case .url = submission.source {
      cache = CacheOutcome(skipsCache || submission.cacheMode == .noStore ? .bypass : .miss)
    }
    move(to: phase)
  }

  private mutating func move(to next: Phase) {
    revise()
    enter(next)
  }

  private mutating func enter(_ next: Phase) {
    precondition(phase.canBecome(next), "\(phase) to \(next)")  // callers check the phase first
    phase = next
    previews = 0
  }
}

/// A job whose batch was cancelled ends as `cancelled`, because the answer to the cancellation counted it so.
extension Job {
  /// Whether the change from `before` is the success or failure of a job that belongs to a batch.
  package func isResultInBatch(after before: Job) -> Bool {
    batch != nil && !before.phase.isFinished && (phase == .success || phase == .failure)
  }

  /// Cancels the job instead, if its change from `before` is such a result. Stores call this when the batch is
  /// cancelled or purged.
  package mutating func discardResult(after before: Job) {
    guard isResultInBatch(after: before), let finishedAt, let expiresAt else { return }
    var job = before
    (job.progress, job.attempts, job.timings) = (progress, attempts, timings)
    _ = job.cancel(at: finishedAt, keptFor: expiresAt - finishedAt)
    self = job
  }
}

/// What a job has between its load and its success: the image, and the finished variants and deliveries.
///
/// It is stored in the job's record, and the job refers to the image. After a crash the job continues from
/// here.
package struct PendingResult: Sendable, Equatable, Codable {
  /// The loaded image. It gets its variants once they are made, and then its bundle if the original is
  /// dropped.
  package var image: StoredImage
  /// The cache's part in the load; nil for sources other than URLs.
  package var cache: CacheOutcome?
  /// The deliveries made so far, in the order of ``Submission/deliveryOrder``.
  package var deliveries: [Delivered] = []
  /// When unfinished deliveries fail the job; nil before the first delivery is due.
  package var deliverUntil: Timestamp?

  package init(_ image: StoredImage, _ cache: CacheOutcome?) {
    (self.image, self.cache) = (image, cache)
  }
}

extension PendingResult {
  /// Whether all variants of the submission are made.
  package func isRendered(for submission: Submission) -> Bool {
    image.variants.count == submission.variants.count
      && (image.bundle != nil || !submission.dropsOriginal)
  }

  /// The deliveries made so far, in the order of the request.
  package func deliveriesInRequestOrder(of submission: Submission) -> [Delivered] {
    zip(submission.deliveryOrder, deliveries).sorted { $0.0 < $1.0 }.map(\.1)
  }
}

extension Submission {
  /// Whether the job succeeds as soon as its image is loaded.
  package var wantsImageOnly: Bool { variants.isEmpty && deliveries.isEmpty }

  /// The order of the deliveries, as indices into ``deliveries``. Normally the order of the request. If the
  /// original is dropped, its deliveries come first, because its bytes exist only until the variants are
  /// made.
  package var deliveryOrder: [Int] {
    let all = Array(deliveries.indices)
    guard dropsOriginal else { return all }
    return all.filter { deliveries[$0].variant == nil }
      + all.filter { deliveries[$0].variant != nil }
  }
}
