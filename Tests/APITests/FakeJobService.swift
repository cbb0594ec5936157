import API
import Digests
import HTTP
import Jobs
import Synchronization
import TestSupport

/// A job engine in memory that runs no jobs. Tests change the phases of jobs.
final class FakeJobService: JobService {
  struct Kept {
    var jobs: [JobID: Job] = [:]
    var images: [ImageDigest: [UInt8]] = [:]
    var previews: [JobID: Preview] = [:]
    var messages: [JobID: [WebhookMessage]] = [:]
    var keys: [String: (fingerprint: ImageDigest, jobs: [JobID])] = [:]
    var capacity = 10_000
    var state = ServiceState.ready
    var failure: StoreError?
    /// The error of every attempt to make a variant.
    var refusal: JobsError?
    /// The operator's placeholder images.
    var pictures: [Placeholder: PlaceholderImage] = [:]
    /// The variants that were opened, with their priorities.
    var opened: [(rendition: Rendition, priority: Priority)] = []
    var remembers = true
    var captures = 0
    /// Where images are stored; nil: in memory.
    var descriptor: Int32?
    var milliseconds: Int64 = 1_795_000_000_000
    var counts = CacheCounts()
    /// The URLs that were deleted from the cache, in order; nil: everything.
    var dropped: [SourceURL?] = []
    var isConstrained = false
    /// Local names that lead out of the root.
    var outside: Set<String> = []
    /// Called between reading a job and changing it.
    var meanwhile: (@Sendable (inout Job) -> Void)?
    /// What all queued jobs wait for.
    var waiting = WaitingFor(.worker, origin: nil)
    /// The subscriptions, in order.
    var listening: [Listening] = []
    /// The parts in which lines were added, in order.
    var additions: [Int] = []
    /// The bytes that were moved from memory to a file.
    var filed: [[UInt8]] = []
  }
  enum Listening: Equatable {
    case one(JobID, seen: Int?, cancels: Bool)
    case many(SubscriptionQuery)
  }
  private let kept = Mutex(Kept())
  /// Its batches.
  let batchStore: any JobStore = MemoryJobStore()
  /// Nil: the service makes no variants.
  let renderer: FakeRenderer?

  init(renderer: FakeRenderer? = FakeRenderer()) { self.renderer = renderer }

  private static let viewer = Caller(owner: .view, isAdmin: false)

  /// Equal requests share one job.
  func view(_ job: NewJob, atMost limit: Duration) async throws(JobsError) -> JobSnapshot {
    let snapshot = try await given(job)
    return try await wait(snapshot.job.id, for: Self.viewer, until: .finished, atMost: limit)
  }

  private func given(_ job: NewJob) async throws(JobsError) -> JobSnapshot {
    try check()
    // One job serves all sizes.
    func source(_ submission: Submission) -> Submission {
      var submission = submission
      submission.variants = []
      return submission
    }
    let viewed = kept.withLock { kept in
      kept.jobs.values.first {
        $0.owner == .view && source($0.submission) == source(job.submission)
      }
    }
    if let viewed { return JobSnapshot(viewed) }
    guard let snapshot = try await submit([job], by: Self.viewer, key: nil)[0].snapshot else {
      throw .unknownJob
    }
    return snapshot
  }

  func with<T>(_ body: (inout sending Kept) -> sending T) -> T { kept.withLock(body) }

  /// Changes a job as a worker would.
  func change(_ id: JobID, _ change: (inout Job) -> Void) {
    kept.withLock { kept in
      guard var job = kept.jobs[id] else { return }
      change(&job)
      kept.jobs[id] = job
    }
  }

  var state: ServiceState { kept.withLock { $0.state } }
  let instance = Instance(number: 7)

  func instances() async throws(JobsError) -> [PresentInstance] {
    try check()
    var first = PresentInstance(
      Instance(number: 3), name: "one \"a\"", version: "0.1.0",
      since: Timestamp(milliseconds: 1_795_000_000_000), loading: 2)
    (first.running, first.oldest, first.workers) = (1, .milliseconds(1_500), 64)
    return [
      first,
      PresentInstance(
        instance, name: nil, version: nil, since: Timestamp(milliseconds: 1_795_000_000_000),
        loading: 0),
    ]
  }

  func now() -> Timestamp { kept.withLock { Timestamp(milliseconds: $0.milliseconds) } }

  func peek(_ id: JobID, for caller: Caller) -> JobSnapshot? {
    kept.withLock { kept in
      guard kept.remembers, let job = kept.jobs[id], caller.sees(job) else { return nil }
      return JobSnapshot(job)
    }
  }

  func waiting(of job: Job) -> WaitingFor? {
    job.phase == .queued ? kept.withLock { $0.waiting } : nil
  }

  func job(_ id: JobID, for caller: Caller) async throws(JobsError) -> JobSnapshot {
    try check()
    guard let job = kept.withLock({ $0.jobs[id] }), caller.sees(job) else { throw .unknownJob }
    return JobSnapshot(job)
  }

  func submit(
    _ jobs: [NewJob], by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> [SubmittedJob] {
    try check()
    if let key, let first = kept.withLock({ $0.keys["\(key.owner.name)/\(key.key)"] }) {
      guard first.fingerprint == key.fingerprint else { throw .keyReused }
      return kept.withLock { kept in
        first.jobs.map { id in
          kept.jobs[id].map { SubmittedJob(JobSnapshot($0)) } ?? SubmittedJob(gone: id)
        }
      }
    }
    let outside = kept.withLock { $0.outside }
    let escaping = jobs.indices.filter { place in
      if case .local(let name) = jobs[place].submission.source {
        outside.contains(name)
      } else {
        false
      }
    }
    guard escaping.isEmpty else { throw .invalidLocalNames(escaping) }
    let queued = kept.withLock { $0.jobs.values.count { $0.phase == .queued } }
    guard queued + jobs.count <= kept.withLock({ $0.capacity }) else { throw .queueFull }
    return kept.withLock { kept in
      let made = jobs.map { new in
        kept.milliseconds += 1
        let now = Timestamp(milliseconds: kept.milliseconds)
        return Job(
          id: JobID(at: now), owner: caller.owner, submission: new.submission,
          priority: new.priority,
          tags: new.tags, createdAt: now)
      }
      for job in made { kept.jobs[job.id] = job }
      if let key {
        kept.keys["\(key.owner.name)/\(key.key)"] = (key.fingerprint, made.map(\.id))
      }
      return made.map { SubmittedJob(JobSnapshot($0)) }
    }
  }

  func messages(of id: JobID, for caller: Caller) async throws(JobsError) -> [WebhookMessage] {
    _ = try await job(id, for: caller)
    return kept.withLock { $0.messages[id] ?? [] }
  }

  func resendWebhook(of id: JobID, for caller: Caller) async throws(JobsError) -> WebhookMessage? {
    _ = try await job(id, for: caller)
    return kept.withLock { kept in
      guard var message = kept.messages[id]?.popLast() else { return nil }
      message.sendAgain(at: Timestamp(milliseconds: kept.milliseconds))
      kept.messages[id]?.append(message)
      return message
    }
  }

  func beginCapture(by owner: Owner) async throws(JobsError) -> any ImageCapture {
    try check()
    kept.withLock { $0.captures += 1 }
    return FakeCapture()
  }

  func submit(
    captured capture: any ImageCapture, as job: NewJob, by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> SubmittedJob {
    let capture = capture as! FakeCapture  // the only kind that beginCapture() makes
    let image = try await capture.finish()
    kept.withLock { $0.images[image.digest] = capture.bytes }
    return try await submit([job], by: caller, key: key)[0]
  }

  func jobs(_ query: JobQuery) async throws(JobsError) -> JobPage {
    try check()
    let fitting = kept.withLock { $0.jobs.values }.filter { job in
      (query.owner == nil || job.owner == query.owner)
        && (query.phases.isEmpty || query.phases.contains(job.phase))
        && query.tag.map { job.tags.contains(tag: $0) } != false
        && query.end.map { job.id < $0 } != false
        && query.start.map { job.id >= $0 } != false && query.selects(job)
        && query.batch.map { job.batch?.id == $0 } != false
    }.sorted { $0.id > $1.id }
    return JobPage(
      jobs: Array(fitting.prefix(query.limit)), hasMore: fitting.count > query.limit)
  }

  func cancel(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]?
  ) async throws(JobsError) -> JobSnapshot {
    try await changed(id, for: caller, expected) { job, now in
      _ = job.cancel(at: now, keptFor: .seconds(60))
    }
  }

  func purge(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]?
  ) async throws(JobsError) {
    _ = try await changed(id, for: caller, expected) { _, _ in }
    kept.withLock { $0.jobs[id] = nil }
  }

  func edit(
    _ id: JobID, for caller: Caller, priority: Priority?, tags: [String]?,
    ifVersion expected: [Int]?
  ) async throws(JobsError) -> JobSnapshot {
    try await changed(id, for: caller, expected) { job, _ in
      _ = job.edit(priority: priority, tags: tags)
    }
  }

  func refetch(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]?
  ) async throws(JobsError) -> JobSnapshot {
    try await changed(id, for: caller, expected) { job, now in
      _ = job.fetchAgain(at: now, from: .regular)
    }
  }

  func wait(
    _ id: JobID, for caller: Caller, until goal: WaitCondition, atMost limit: Duration
  ) async throws(JobsError) -> JobSnapshot {
    let deadline = ContinuousClock.now + limit
    while true {
      let snapshot = try await job(id, for: caller)
      if goal.isMet(by: snapshot.job) || ContinuousClock.now >= deadline || Task.isCancelled {
        return snapshot
      }
      try? await Task.sleep(for: .milliseconds(1))
    }
  }

  func subscribe(
    to id: JobID, for caller: Caller, seen: Int?, cancelsOnDisconnect: Bool
  ) async throws(JobsError) -> any JobSubscription {
    let snapshot = try await job(id, for: caller)
    kept.withLock { $0.listening.append(.one(id, seen: seen, cancels: cancelsOnDisconnect)) }
    return FakeListener([.job(snapshot, [.phase, .image])])
  }

  func subscribe(_ query: SubscriptionQuery) -> any JobSubscription {
    let (jobs, now) = kept.withLock { kept in
      kept.listening.append(.many(query))
      return (kept.jobs.values.sorted { $0.id > $1.id }, Timestamp(milliseconds: kept.milliseconds))
    }
    return FakeListener(jobs.map { .job(JobSnapshot($0), [.phase]) } + [.caughtUp(now)])
  }

  func openImage(of job: Job) async throws(JobsError) -> StoredBytes {
    try check()
    let bytes = kept.withLock { kept in job.image.flatMap { kept.images[$0.digest] } }
    guard let bytes else { throw .imageGone }
    guard let descriptor = kept.withLock({ $0.descriptor }) else { return .memory(bytes) }
    return .file(FakeFile(descriptor, bytes))
  }

  func preview(of id: JobID) -> Preview? { kept.withLock { $0.previews[id] } }

  var outputFormats: Set<OutputFormat> { renderer?.formats ?? [] }

  func rendition(of image: StoredImage, as variant: Variant) -> Rendition? {
    renderer.map { Rendition(of: image, as: variant, by: $0) }
  }

  func placeholderImage(for placeholder: Placeholder) -> PlaceholderImage {
    kept.withLock { $0.pictures[placeholder] } ?? .builtIn(for: placeholder)
  }

  func rendition(of image: PlaceholderImage, as variant: Variant) -> Rendition? {
    renderer.map { Rendition(of: image, as: variant, by: $0) }
  }

  private func source(of rendition: Rendition) -> [UInt8]? {
    switch rendition.source {
    case .image(let image): kept.withLock { $0.images[image.digest] }
    case .placeholder(let picture): picture.bytes
    }
  }

  func open(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    kept.withLock { $0.opened.append((rendition, job.priority)) }
    return RenderedBytes(try picture(rendition))
  }

  func openPlaceholder(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    kept.withLock { $0.opened.append((rendition, .veryLow)) }
    return RenderedBytes(try picture(rendition))
  }

  func file(_ bytes: [UInt8]) async throws(JobsError) -> StoredBytes {
    try check()
    kept.withLock { $0.filed.append(bytes) }
    return .memory(bytes)
  }

  private func picture(_ rendition: Rendition) throws(JobsError) -> [UInt8] {
    try check()
    if let refusal = kept.withLock({ $0.refusal }) { throw refusal }
    guard let source = source(of: rendition) else { throw .imageGone }
    return FakeRenderer.picture(rendition.variant, of: source)
  }

  func cacheCounts() async throws(JobsError) -> CacheCounts {
    try check()
    return kept.withLock { $0.counts }
  }

  func deleteFromCache(_ url: SourceURL?) async throws(JobsError) -> Int {
    try check()
    return kept.withLock { kept in
      kept.dropped.append(url)
      return url == nil ? kept.counts.entries : 1
    }
  }

  var isConstrained: Bool { kept.withLock { $0.isConstrained } }

  func setConstrained(_ isConstrained: Bool) async throws(JobsError) {
    try check()
    kept.withLock { $0.isConstrained = isConstrained }
  }

  private func changed(
    _ id: JobID, for caller: Caller, _ expected: [Int]?, _ change: (inout Job, Timestamp) -> Void
  ) async throws(JobsError) -> JobSnapshot {
    if let meanwhile = kept.withLock({ $0.meanwhile }) { self.change(id, meanwhile) }
    var job = try await job(id, for: caller).job
    guard job.isUnchanged(since: expected) else { throw .versionDiffers }
    change(&job, now())
    kept.withLock { [job] in $0.jobs[id] = job }
    return JobSnapshot(job)
  }

  func check() throws(JobsError) {
    if let failure = kept.withLock({ $0.failure }) { throw .store(failure) }
  }
}

/// A file with a descriptor, as far as these tests need it.
final class FakeFile: StoredFile, SendableFile {
  let descriptor: Int32
  private let bytes: [UInt8]
  var count: Int { bytes.count }

  init(_ descriptor: Int32, _ bytes: [UInt8]) {
    (self.descriptor, self.bytes) = (descriptor, bytes)
  }

  func read(at offset: Int, count: Int) -> [UInt8] { Array(bytes.dropFirst(offset).prefix(count)) }
}

/// Returns the given events, and then none.
final class FakeListener: JobSubscription {
  private let news: Mutex<[JobUpdate]>
  init(_ news: [JobUpdate]) { self.news = Mutex(news) }
  func onUpdate(_ wake: @escaping @Sendable () -> Void) {}
  func next() -> JobUpdate { news.withLock { $0.isEmpty ? .nothing : $0.removeFirst() } }
}

final class FakeCapture: ImageCapture {
  private let content = Mutex<[UInt8]>([])
  var bytes: [UInt8] { content.withLock { $0 } }

  func write(_ bytes: [UInt8]) async throws(JobsError) { content.withLock { $0 += bytes } }

  func finish() async throws(JobsError) -> CapturedImage {
    let bytes = bytes
    return CapturedImage(
      digest: ImageDigest(bytes: SHA256.hash(data: bytes))!, bytes: bytes.count)  // 32 bytes
  }
}
