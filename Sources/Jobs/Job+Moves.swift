/// The moves of a job's life. Each keeps phase, times and version in step; none looks at a clock.
extension Job {
  /// A worker takes it: `queued` to `loading`.
  /// - Parameter floor: a version that no client was shown a higher one than, where the store may have forgotten some.
  public mutating func start(at moment: Timestamp, above floor: Int = 0) {
    version = max(version, floor)
    timings = Timings()
    timings.queued = max(.zero, moment - max(notBefore ?? createdAt, createdAt))
    progress = Progress()
    startedAt = startedAt ?? moment
    notBefore = nil
    lastFailure = nil
    if target.isFirst { tries += 1 }
    move(to: .loading)
  }

  /// What its worker has to tell while it is loading, and for good when it stops.
  ///
  /// - Parameter shown: the version that clients may have seen. What a worker tells is kept in memory until it stops,
  ///   so the store's version is behind; it leaps over those that may yet be shown before this change is.
  public mutating func note(_ report: ProgressReport, shown: Int) {
    guard phase == .loading else { return }
    progress = report.progress
    attempts = max(attempts, report.attempts)
    previews = report.previews
    timings.take(report.timings)
    version = max(version, shown)
    version += 1
  }

  /// Takes over what only memory knows of a loading job, before another change is made to it: progress so far, and
  /// room in the versions for what its worker may yet show before that change is saved.
  public mutating func keepWhatIsShown(_ shown: Job?) {
    guard let shown, phase == .loading, shown.phase == .loading, shown.tries == tries else {
      return
    }
    progress = shown.progress
    attempts = shown.attempts
    timings = shown.timings
    previews = shown.previews
    version = max(version, shown.version + Self.versionsPerChange)
  }

  /// Never lets a loading job's progress fall behind what is shown.
  package mutating func keepProgress(of shown: Job) {
    guard phase == .loading, shown.phase == .loading, shown.tries == tries,
      shown.progress.completed > progress.completed
    else { return }
    progress = shown.progress
    previews = shown.previews
  }

  /// The image was decoded whole and stored, now or by an earlier job that the cache remembers.
  ///
  /// - Parameter cache: nil for other sources than URLs.
  public mutating func succeed(
    with image: StoredImage, cache: CacheOutcome?, at moment: Timestamp,
    keptFor retention: Duration
  ) {
    self.image = image
    progress.completed = image.bytes
    progress.total = image.bytes
    finish(as: .success, at: moment, keptFor: retention)
    self.cache = cache
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

  /// The regular image takes the place of the low-data one.
  public mutating func replaceImage(with image: StoredImage, cache: CacheOutcome?) {
    guard phase == .success else { return }
    self.image = image
    self.cache = cache
    target = .regular
    progress = Progress(completed: image.bytes, total: image.bytes)
    version += 1
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

  /// Another try after one that failed so, from that target and not before `moment`: `loading` to `queued`.
  public mutating func retry(
    after failure: JobFailure, from first: URLCandidate, notBefore moment: Timestamp
  ) {
    lastFailure = failure
    notBefore = moment
    target = first
    move(to: .queued)
  }

  /// Its URL failed, and this one is to be asked instead: `loading` to `queued`.
  public mutating func turn(to next: URLCandidate) {
    target = next
    move(to: .queued)
  }

  /// The service stops before it was done: as if it had not been taken.
  public mutating func requeue() {
    if target.isFirst { tries = max(0, tries - 1) }
    move(to: .queued)
  }

  /// Its worker is gone. The version leaps over those that the lost worker may have shown for progress.
  public mutating func requeueAfterCrash() {
    version += Self.versionsPerClaim
    requeue()
  }

  /// More versions than one claim's progress can use: ten a second for longer than any transfer may take.
  static let versionsPerClaim = 1_000_000

  /// More versions than progress can use while one change is on its way to the store.
  static let versionsPerChange = 1_000

  /// New labels or another priority.
  /// - Returns: false when nothing differs.
  public mutating func edit(priority: Priority?, tags: [String]?) -> Bool {
    guard priority ?? self.priority != self.priority || tags ?? self.tags != self.tags else {
      return false
    }
    self.priority = priority ?? self.priority
    self.tags = tags ?? self.tags
    version += 1
    return true
  }

  /// Its image gave way to newer ones.
  public mutating func loseImage() {
    image?.isKept = false
    version += 1
  }

  private mutating func finish(as phase: Phase, at moment: Timestamp, keptFor retention: Duration) {
    finishedAt = moment
    expiresAt = moment + retention
    notBefore = nil
    lastFailure = nil
    if case .url = submission.source {
      cache = CacheOutcome(submission.cacheMode == .noStore ? .bypass : .miss)
    }
    move(to: phase)
  }

  private mutating func move(to next: Phase) {
    precondition(phase.canBecome(next), "\(phase) to \(next)")  // callers ask the phase first
    phase = next
    previews = 0
    version += 1
  }
}
