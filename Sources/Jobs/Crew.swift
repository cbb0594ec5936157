internal import Logging

/// What all who work on jobs share.
struct Crew: Sendable {
  let configuration: JobEngine.Configuration
  let dispatcher: Dispatcher
  let store: any JobStore
  let images: any ImageStore
  let partials: any PartialStore
  let locals: (any LocalImages)?
  let keeper: ImageKeeper
  let cache: ResponseCache
  let opener: ImageOpener
  /// Nil where none are made.
  let variants: Variants?
  let fetcher: any ImageFetcher
  let intake: ImageIntake
  let threads: any ComputeThreads
  let board: JobBoard
  let loads: Loads
  let origins: Origins
  let background: BackgroundLoads
  let network: NetworkState
  let views: Views
  let metrics: JobMetrics
  let ids: JobIDSequence
  let now: WallClock
  let log: Logger

  /// A job's part in a load that it enters now.
  func member(_ job: Job, _ claim: Claim) -> Load.Member {
    let limits = MemberLimits(of: job, within: configuration)
    return Load.Member(job: job, claim: claim, limits: limits, deadline: .now + limits.timeout)
  }

  /// A new load for a job.
  func load(for job: Job, isBackground: Bool = false) -> Load {
    let moment = now()
    return Load(
      for: job, request: isBackground ? nil : job.request, holder: ids.next(at: moment),
      since: moment, lane: threads.lane(at: job.priority), isBackground: isBackground)
  }

  /// Has queued jobs that ask the same join the load, wherever they stand in the queue.
  func gather(_ request: Fingerprint) async {
    do throws(StoreError) {
      var taken: [(job: Job, claim: Claim)]
      repeat {
        taken = try await store.claim(equalTo: request, count: 1_000, at: now())
        for (job, claim) in taken { await join(job, claim) }
      } while taken.count == 1_000
    } catch {
      log.error("the store hands over no jobs", metadata: ["error": "\(error)"])
    }
  }

  private func join(_ job: Job, _ claim: Claim) async {
    let member = member(job, claim)
    switch loads.enter(member, make: { load(for: job) }) {
    case .joined(let load):
      metrics.joined()
      show(member, in: load)
    case .began(let load):
      // The load that it was meant for has just ended: it waits for its turn again, and for its origin.
      await end(load, .putBack)
      dispatcher.wake()
    case .refused: await Settling(crew: self).putBack(job, claim)
    }
  }

  private func end(_ load: Load, _ ending: Settling.Ending) async {
    let members = loads.seal(load)
    await Settling(crew: self).settle(members, of: load) { _ in ending }
    loads.end(load)
  }

  /// Shows that a job is loading, and how far that is; a cancellation or a purge that came first is on the board by now.
  func show(_ member: Load.Member, in load: Load) {
    guard board.publish(member.job)?.job.phase == .loading else {
      return loads.leave(member, load)
    }
    let news = load.reporter.news
    if news != LoadNews() { board.report(member.job.id, RunReport(of: member.job, news)) }
  }

  /// Tells members that have left before the others how it ended for them.
  func tellDepartures(from load: Load) async {
    let departures = load.takeDepartures()
    guard !departures.isEmpty else { return }
    let failures = Dictionary(
      departures.map { ($0.member.claim, $0.failure) }, uniquingKeysWith: { first, _ in first })
    await Settling(crew: self).settle(departures.map(\.member), of: load) { member in
      .failure(failures[member.claim] ?? .internal)
    }
  }
}

extension Crew {
  init(
    _ configuration: JobEngine.Configuration, _ parts: JobEngine.Parts,
    now: @escaping WallClock, log: Logger
  ) {
    let bell = DispatcherBell()
    var rules = OriginRules()
    rules.maxTransfers = configuration.maxPerOrigin
    rules.requestsPerSecond = configuration.requestsPerSecondPerOrigin
    let origins = Origins(rules) { bell.ring() }
    let board = JobBoard(capacity: configuration.shownJobs)
    let cache = ResponseCache(
      configuration.cache, store: parts.store, images: parts.images, log: log)
    let keeper = ImageKeeper(store: parts.store, images: parts.images)
    let opener = ImageOpener(memory: cache.memory, images: parts.images, threads: parts.threads)
    let (memory, metrics, ids) = (
      DecodeMemory(bytes: configuration.limits.maxMemory), JobMetrics(), JobIDSequence()
    )
    let shelf = VariantShelf(
      cache: cache, store: parts.store, images: parts.images, opener: opener, keeper: keeper,
      cacheLimit: configuration.cache.disk, storeLimit: configuration.maxStoredBytes, ids: ids,
      now: now, log: log)
    let variants = parts.renderer.map { renderer in
      Variants(
        VariantRendering(
          renderer: renderer, memory: memory, opener: opener,
          maxMemory: configuration.limits.maxMemory),
        shelf: shelf, threads: parts.threads, metrics: metrics,
        queue: VariantQueue(
          atOnce: configuration.renderingsAtOnce, maxWaiting: configuration.maxWaitingRenderings))
    }
    self.init(
      configuration: configuration,
      dispatcher: Dispatcher(
        store: parts.store, origins: origins, workers: configuration.workers, bell: bell, now: now,
        log: log),
      store: parts.store, images: parts.images, partials: parts.images, locals: parts.locals,
      keeper: keeper, cache: cache, opener: opener, variants: variants,
      fetcher: parts.fetcher,
      intake: ImageIntake(codec: parts.codec, memory: memory),
      threads: parts.threads, board: board, loads: Loads(board: board), origins: origins,
      background: BackgroundLoads(),
      network: NetworkState(isConstrained: configuration.isConstrained),
      views: Views(capacity: configuration.shownJobs), metrics: metrics,
      ids: ids, now: now, log: log)
  }

  /// Shows how far loads have come, ten times a second, and ends what takes jobs too long, until cancelled.
  func watchLoads() async {
    var round = 0
    while !Task.isCancelled {
      for load in loads.all {
        load.passed(.now)
        await tellDepartures(from: load)
        if round.isMultiple(of: 2), let news = load.reporter.takeNews() { show(news, of: load) }
      }
      round += 1
      board.listeners.ringAgain()
      try? await Task.sleep(for: .milliseconds(50))
    }
  }

  private func show(_ news: LoadNews, of load: Load) {
    for member in load.members { board.report(member.job.id, RunReport(of: member.job, news)) }
  }

  /// Shows how far a job's load has come before something else happens to the job.
  func showNews(of id: JobID) {
    for load in loads.of(id) { if let news = load.reporter.takeNews() { show(news, of: load) } }
  }

  /// Forgets what is kept for a purged job beside its image: broken-off bytes, and what the cache has of it.
  func forgetBytes(of job: Job) async {
    if let key = job.partial, job.phase != .success { try? await partials.drop(key) }
    guard let image = job.image else { return }
    await cache.forgetVariants(of: image.digest)
    if let key = job.cacheKey { await cache.forget(image.digest, under: key) }
  }
}
