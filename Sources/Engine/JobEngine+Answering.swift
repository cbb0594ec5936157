internal import Jobs

/// Jobs that the cache answers when they are submitted, so that they wait for nobody.
extension JobEngine {
  /// The jobs, those finished already whose image is stored and may be used as it is.
  func answered(_ jobs: [Job]) async -> [Job] {
    let moment = now()
    let asked = candidates(jobs)
    guard !asked.isEmpty else { return jobs }
    let answers = await cache.answers(asked.map(\.job), at: moment)
    var jobs = jobs
    for (candidate, answer) in zip(asked, answers) where jobs[candidate.place].phase == .queued {
      guard case .use(let entry, let outcome, let isStale) = answer,
        fits(entry.image, candidate.job), await cache.state(of: entry) == .whole
      else { continue }
      var image = entry.image.seen(as: candidate.job.target)
      if !candidate.job.submission.variants.isEmpty {
        guard let made = await kept(for: candidate.job, of: entry.image) else { continue }
        image.variants = made
      }
      cache.used(entry, outcome.status, at: moment)
      if isStale { background.freshen(candidate.job) }
      let retention = candidate.job.submission.retention ?? configuration.retention
      jobs[candidate.place].target = candidate.job.target
      jobs[candidate.place].answer(
        with: image, outcome, at: moment, keptFor: retention)
    }
    return jobs
  }

  /// The variants that a job wants, where all are kept.
  private func kept(for job: Job, of image: StoredImage) async -> [MadeVariant]? {
    guard job.submission.cacheMode != .noStore else { return nil }
    return await variants?.kept(
      job.submission.variants, of: image,
      apartFor: configuration.cache.isShared ? nil : job.owner)
  }

  /// What to look up: a regular image that is stored is better than the low-data one in its place.
  private func candidates(_ jobs: [Job]) -> [(place: Int, job: Job)] {
    jobs.enumerated().flatMap { place, job -> [(place: Int, job: Job)] in
      guard job.submission.takesStored else { return [] }
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
    let limits = JobLimits(of: job, within: loads.rules)
    return limits.objection(bytes: image.bytes, header: header) == nil
  }
}

extension Submission {
  /// Whether a stored response may be its job's image at once.
  var takesStored: Bool {
    guard case .url = source, cacheMode.takesStored else { return false }
    // What is kept of an image whose own bytes are dropped is the job's alone; and before its success one that is to be
    // delivered has to be brought somewhere.
    return !dropsOriginal && deliveries.isEmpty
  }
}

extension CacheMode {
  /// Whether a stored response may be used without asking the origin.
  fileprivate var takesStored: Bool {
    switch self {
    case .default, .forceCache, .onlyIfCached: true
    case .noStore, .reload, .noCache: false
    }
  }
}
