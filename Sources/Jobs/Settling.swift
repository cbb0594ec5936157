internal import Logging

/// The word to the store, the board, the log and the metrics about how work on jobs ended.
struct Settling: Sendable {
  let crew: Crew

  /// How it ended for one job.
  enum Ending: Sendable {
    /// An image, and what the cache did for it.
    case success(StoredImage, CacheOutcome?)
    /// Perhaps to be tried again, or elsewhere.
    case failure(JobFailure)
    /// As if it had not been taken.
    case putBack
  }

  /// A change to one job, ready to be made by the store.
  private struct Plan: Sendable {
    let report: RunReport
    let shown: Int
    let change: @Sendable (inout Job) -> Void
  }

  /// Writes down how a load ended for some of its members. Returns once that is durable; given up when the service
  /// stops, and the next start then runs the jobs again.
  ///
  /// - Parameters:
  ///   - entry: a response for the cache to keep.
  ///   - releasing: the reservation of its image.
  func settle(
    _ members: [Load.Member], of load: Load, entry: CacheEntry? = nil, releasing: JobID? = nil,
    _ ending: (Load.Member) -> Ending
  ) async {
    let news = load.reporter.news
    let moment = crew.now()
    var plans: [JobID: Plan] = [:]
    for member in members {
      plans[member.job.id] = plan(ending(member), for: member, news, at: moment)
    }
    let ready = plans
    let settlement = Settlement(
      members.map(\.claim), entry: entry, cacheLimit: crew.configuration.cache.disk,
      releasing: releasing
    ) { job in
      guard let plan = ready[job.id] else { return false }
      job.note(plan.report, shown: plan.shown)
      plan.change(&job)
      return true
    }
    for job in await save(settlement) ?? [] {
      guard let job else { continue }
      crew.board.publish(job)
      tell(job)
    }
    for member in members { crew.loads.forget(member) }
  }

  /// A job that nobody could begin with.
  func putBack(_ job: Job, _ claim: Claim) async {
    _ = try? await crew.store.update(job.id, under: claim) { job in
      job.putBack()
      return true
    }
  }

  private func save(_ settlement: Settlement) async -> [Job?]? {
    var wait = Duration.milliseconds(50)
    while true {
      do throws(StoreError) { return try await crew.store.settle(settlement) } catch {
        // The result is worth waiting for: nobody else has it.
        crew.log.error("the store takes no result", metadata: ["error": "\(error)"])
        if crew.board.isClosed { return nil }
        await Self.sleep(wait)
        wait = min(wait * 2, .seconds(5))
      }
    }
  }

  /// Also in a cancelled task, which ends no other way than with the word about its jobs.
  private static func sleep(_ time: Duration) async {
    await withCheckedContinuation { done in
      Task.detached {
        try? await Task.sleep(for: time)
        done.resume()
      }
    }
  }

  // MARK: What becomes of a job

  private func plan(
    _ ending: Ending, for member: Load.Member, _ news: LoadNews, at moment: Timestamp
  ) -> Plan {
    let shown = crew.board.peek(member.job.id)?.job.version ?? 0
    return Plan(
      report: RunReport(of: member.job, news), shown: shown,
      change: change(ending, for: member, at: moment))
  }

  private func change(
    _ ending: Ending, for member: Load.Member, at moment: Timestamp
  ) -> @Sendable (inout Job) -> Void {
    let retention = member.job.submission.retention ?? crew.configuration.retention
    switch ending {
    case .putBack: return { $0.putBack() }
    case .success(let image, let cache):
      if let failure = objection(to: image, for: member) {
        return fail(member, failure, at: moment)
      }
      return { $0.succeed(with: image, cache: cache, at: moment, keptFor: retention) }
    case .failure(let failure): return fail(member, failure, at: moment)
    }
  }

  /// Why an image that was loaded for all is not for this one.
  private func objection(to image: StoredImage, for member: Load.Member) -> JobFailure? {
    if let expected = member.job.submission.integrity, expected != image.digest {
      return .integrityMismatch(expected: expected, actual: image.digest)
    }
    let header = ImageHeader(
      format: image.description.format, width: image.description.width,
      height: image.description.height, decodingMemory: 0)
    return member.limits.objection(bytes: image.bytes, header: header)
  }

  private func fail(
    _ member: Load.Member, _ failure: JobFailure, at moment: Timestamp
  ) -> @Sendable (inout Job) -> Void {
    let job = member.job
    if let next = job.target.next(in: job.submission) { return { $0.turn(to: next) } }
    let delay = crew.configuration.retry.delay(
      after: failure, tries: job.tries, allowed: job.submission.maxAttempts,
      dice: .random(in: 0...1))
    if let delay {
      crew.log.info(
        "job will be tried again",
        metadata: [
          "job": "\(job.id)", "code": "\(failure.code.rawValue)", "delay": "\(delay.toldInSeconds)",
          "error": "\(failure)",
        ])
      let first = crew.network.firstTarget(of: job.submission)
      return { $0.retry(from: first, notBefore: moment + delay) }
    }
    let retention = job.submission.retention ?? crew.configuration.retention
    return { $0.fail(failure, at: moment, keptFor: retention) }
  }

  // MARK: The word to people

  /// Counts and logs a job that has finished.
  func tell(_ job: Job) {
    guard job.phase.isFinished else {
      crew.dispatcher.wake()
      return
    }
    crew.metrics.finished(job)
    // The network changed while it was under way.
    if job.image?.variant == .lowData, crew.network.firstTarget(of: job.submission) == .regular {
      crew.background.replaceLowData()
    }
    var metadata: Logger.Metadata = [
      "job": "\(job.id)", "phase": "\(job.phase.rawValue)", "bytes": "\(job.progress.completed)",
      "attempts": "\(job.attempts)",
    ]
    if let url = job.submission.url(of: .regular) { metadata["host"] = "\(url.authority)" }
    if let cache = job.cache { metadata["cache"] = "\(cache.status.rawValue)" }
    if let failure = job.failure {
      metadata["code"] = "\(failure.code.rawValue)"
      metadata["error"] = "\(failure)"
    }
    if let started = job.startedAt, let finished = job.finishedAt {
      metadata["seconds"] = "\((finished - started).toldInSeconds)"
    }
    crew.log.info("job finished", metadata: metadata)
  }
}
