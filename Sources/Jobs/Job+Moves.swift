/// The moves of a job's life. Each keeps phase, times and revision in step; none looks at a clock.
extension Job {
  /// A worker of that instance takes it: `queued` to `loading`.
  public mutating func start(at moment: Timestamp, by instance: Instance = .none) {
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

  /// Whether a claim of it is one of its tries: alternatives belong to the try that came to them.
  private var countsAsTry: Bool { target.isFirst || pending != nil }

  /// Its worker, here, tells of progress. The store hears nothing of it.
  package mutating func note(_ report: ProgressReport) {
    take(report)
    if phase == .loading { count(report: reports + 1) }
  }

  /// Its worker, in another process, told of progress at that version. Previews are the other process's own.
  /// - Returns: false where that is known already, or belongs to another revision.
  package mutating func note(_ report: ProgressReport, at version: Int) -> Bool {
    guard phase == .loading, isAt([version]), version > self.version else { return false }
    let own = previews
    take(report)
    previews = own
    count(report: reports + version - self.version)
    return true
  }

  /// What its worker had to tell, for good: before the move that ends its work.
  public mutating func take(_ report: ProgressReport) {
    guard phase == .loading else { return }
    progress = report.progress
    attempts = max(attempts, report.attempts)
    previews = report.previews
    timings.take(report.timings)
  }

  /// Takes over what only memory knows of a loading job: its progress so far.
  public mutating func keepProgress(of shown: Job?) {
    guard let shown, phase == .loading, shown.phase == .loading, shown.tries == tries,
      shown.progress.completed > progress.completed || shown.attempts > attempts
    else { return }
    progress = shown.progress
    attempts = shown.attempts
    timings = shown.timings
    previews = shown.previews
  }

  /// The image was decoded whole and stored, now or by an earlier job that the cache remembers.
  ///
  /// - Parameters:
  ///   - cache: nil for other sources than URLs.
  ///   - deliveries: what was brought where.
  public mutating func succeed(
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

  /// The image was loaded, and its variants or deliveries are still to be done. The job stays `loading`.
  public mutating func keep(_ pending: PendingResult) {
    self.pending = pending
    (progress.completed, progress.total) = (pending.image.bytes, pending.image.bytes)
    revise()
  }

  /// Puts a job with a pending result back into the queue, not before `moment`: `loading` to `queued`.
  public mutating func postpone(until moment: Timestamp) {
    requeue()
    notBefore = moment
  }

  /// The cache has its image: `queued` to `success`.
  package mutating func answer(
    with image: StoredImage, _ outcome: CacheOutcome, at moment: Timestamp,
    keptFor retention: Duration
  ) {
    startedAt = startedAt ?? moment
    timings.queued = moment - createdAt
    succeed(with: image, cache: outcome, at: moment, keptFor: retention)
  }

  /// The regular image takes the place of the low-data one. Its date is a later one, whatever its origin says: who asks by
  /// that alone, `If-Modified-Since`, has to see that there is another.
  ///
  /// - Parameters:
  ///   - deliveries: what was brought where, in the place of what had been.
  ///   - requests: sent to the origin for it.
  public mutating func replaceImage(
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

  /// The regular image was tried for in vain, by so many requests, and may have been brought to some of where it was to go.
  public mutating func keepImage(deliveries: [Delivered], requests: Int) {
    guard phase == .success else { return }
    self.deliveries = deliveries
    attempts += requests
    revise()
  }

  /// It is given up.
  public mutating func fail(
    _ failure: JobFailure, at moment: Timestamp, keptFor retention: Duration
  ) {
    self.failure = failure
    finish(as: .failure, at: moment, keptFor: retention)
  }

  /// Its owner cancels it.
  /// - Returns: false when it had finished already.
  public mutating func cancel(at moment: Timestamp, keptFor retention: Duration) -> Bool {
    guard !phase.isFinished else { return false }
    finish(as: .cancelled, at: moment, keptFor: retention)
    return true
  }

  /// Its owner wants it again, from that target.
  /// - Returns: false when there is nothing to fetch: under way, or a success whose image is kept.
  public mutating func fetchAgain(at moment: Timestamp, from first: URLCandidate) -> Bool {
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

  /// Another try after one that failed so, from that target and not before `moment`: `loading` to `queued`. A job with a
  /// pending result goes on from that.
  public mutating func retry(
    after failure: JobFailure, from first: URLCandidate, notBefore moment: Timestamp
  ) {
    lastFailure = failure
    notBefore = moment
    if pending == nil { target = first }
    move(to: .queued)
  }

  /// Its URL failed, and this one is to be asked instead: `loading` to `queued`.
  ///
  /// - Parameter failure: of those that this try has come to, the one that decides whether and when there is another.
  public mutating func turn(to next: URLCandidate, after failure: JobFailure) {
    lastFailure = failure
    target = next
    pending = nil
    move(to: .queued)
  }

  /// The service stops before it was done, or its worker is gone: as if it had not been taken.
  public mutating func requeue() {
    if countsAsTry { tries = max(0, tries - 1) }
    move(to: .queued)
  }

  /// New labels or another priority.
  /// - Returns: false when nothing differs.
  public mutating func edit(priority: Priority?, tags: [String]?) -> Bool {
    let tags = tags ?? self.tags
    guard priority ?? self.priority != self.priority || !tags.areSameTags(as: self.tags) else {
      return false
    }
    self.priority = priority ?? self.priority
    self.tags = tags
    revise()
    return true
  }

  /// Whether it was shown newer than it is, or as something else at the same revision: a crash of the store undid that.
  package func isBehind(_ shown: Job) -> Bool {
    revision < shown.revision || revision == shown.revision && phase != shown.phase
  }

  /// What was shown of it is undone: it becomes newer than that, so that whoever was shown it takes it in.
  /// - Returns: false when it is newer already.
  package mutating func lift(above shown: Job) -> Bool {
    guard isBehind(shown) else { return false }
    revise(above: shown.revision)
    return true
  }

  /// Its image gave way to newer ones. An unfinished job loads it again.
  public mutating func loseImage() {
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
    precondition(phase.canBecome(next), "\(phase) to \(next)")  // callers ask the phase first
    phase = next
    previews = 0
  }
}
