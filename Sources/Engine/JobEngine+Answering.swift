internal import Jobs

/// Answers jobs from the cache when they are submitted, so that they never wait in the queue.
extension JobEngine {
  /// Returns the jobs in the same order. A job that the cache can answer is returned finished; the others are unchanged.
  func answeringFromCache(_ jobs: [Job]) async -> [Job] {
    let moment = now()
    let asked = candidates(jobs)
    guard !asked.isEmpty else { return jobs }
    let answers = await caching.responses.answers(asked.map(\.job), at: moment)
    var jobs = jobs
    for (candidate, answer) in zip(asked, answers) where jobs[candidate.place].phase == .queued {
      guard case .use(let entry, let outcome, let isStale) = answer,
        fits(entry.image, candidate.job), await caching.responses.state(of: entry) == .complete
      else { continue }
      var image = entry.image.seen(as: candidate.job.target)
      if !candidate.job.submission.variants.isEmpty {
        guard let made = await storedVariants(for: candidate.job, of: entry.image) else { continue }
        image.variants = made
      }
      caching.responses.recordUse(of: entry, outcome.status, at: moment)
      if isStale { loading.background.addRefresh(of: candidate.job) }
      let retention = candidate.job.submission.retention ?? configuration.retention
      jobs[candidate.place].target = candidate.job.target
      jobs[candidate.place].succeedFromCache(
        with: image, outcome, at: moment, keptFor: retention)
    }
    return jobs
  }

  /// Returns the job's variants if all of them are stored; nil otherwise.
  private func storedVariants(for job: Job, of image: StoredImage) async -> [MadeVariant]? {
    guard job.submission.cacheMode != .noStore else { return nil }
    return await renditions.variants?.kept(
      job.submission.variants, of: image,
      apartFor: configuration.cache.isShared ? nil : job.owner)
  }

  /// Returns the cache lookups for these jobs. A low-data job has two: the regular image is preferred if it is stored.
  private func candidates(_ jobs: [Job]) -> [(place: Int, job: Job)] {
    jobs.enumerated().flatMap { place, job -> [(place: Int, job: Job)] in
      guard job.submission.mayUseStoredResponse else { return [] }
      guard job.target == .lowData else { return [(place, job)] }
      var regular = job
      regular.target = .regular
      return [(place, regular), (place, job)]
    }
  }

  private func fits(_ image: StoredImage, _ job: Job) -> Bool {
    let header = ImageHeader(
      format: image.description.format, width: image.description.width,
      height: image.description.height, decodingMemory: 0)
    let limits = JobLimits(of: job, within: loading.loads.rules)
    return limits.failure(bytes: image.bytes, header: header) == nil
  }
}

extension Submission {
  /// Whether a stored response may be used as the job's image at once.
  var mayUseStoredResponse: Bool {
    guard case .url = source, cacheMode.mayUseStoredResponse else { return false }
    // A job that drops its original stores its variants for itself alone, so it can't use an image of the cache. A job
    // with deliveries has to deliver before it can succeed.
    return !dropsOriginal && deliveries.isEmpty
  }
}

extension CacheMode {
  fileprivate var mayUseStoredResponse: Bool {
    switch self {
    case .default, .forceCache, .onlyIfCached: true
    case .noStore, .reload, .noCache: false
    }
  }
}
