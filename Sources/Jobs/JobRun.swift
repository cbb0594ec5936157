internal import Logging

/// One try at a job: from its source to a stored image or a failure, and the word to the store about it.
struct JobRun: Sendable {
  let job: Job
  let claim: Claim
  let reporter: Reporter
  let crew: Crew

  /// Never throws: whatever happens ends in the store, in memory, and in the log.
  func carryOut() async {
    do throws(JobFailure) {
      let image = try await obtain()
      let isOurs = await settle { job, moment, retention in
        job.succeed(with: image, cache: nil, at: moment, keptFor: retention)
      }
      _ = isOurs
    } catch .fetch(.cancelled) {
      // By a DELETE, in which case the claim is gone and this does nothing; or because the service stops.
      await settle { job, _, _ in job.putBack() }
    } catch {
      await give(up: error)
    }
  }

  private func give(up failure: JobFailure) async {
    let delay = crew.configuration.retry.delay(
      after: failure, tries: job.tries, allowed: job.submission.maxAttempts,
      dice: .random(in: 0...1))
    if let delay {
      crew.log.info(
        "job will be tried again",
        metadata: [
          "job": "\(job.id)", "code": "\(failure.code.rawValue)", "error": "\(failure)",
          "delay": "\(delay.inSeconds)",
        ])
      await settle { job, moment, _ in job.retry(from: .regular, notBefore: moment + delay) }
      crew.dispatcher.wake()
    } else {
      await settle { job, moment, retention in
        job.fail(failure, at: moment, keptFor: retention)
      }
    }
  }

  // MARK: From the source to a published image

  private func obtain() async throws(JobFailure) -> StoredImage {
    switch job.submission.source {
    case .url(let url, let lowData):
      let isConstrained = job.submission.savesData || crew.network.isConstrained
      if isConstrained, let lowData {
        return try await fetch([lowData], as: .lowData)
      }
      return try await fetch([url] + job.submission.alternatives, as: .regular)
    case .captured(let digest, let count, _):
      let limit = min(job.submission.maxBytes ?? count, count)
      guard count <= limit else { throw .fetch(.tooLarge(limit: limit)) }
      reporter.expect(total: count)
      let stored = try await open(digest)
      return try await keep(StoredImageReader(stored), from: nil, as: .regular)
    case .local(let name):
      throw .localNotFound(name: name)
    }
  }

  /// The first of the URLs that gives an image; the last one's failure where none does.
  private func fetch(
    _ urls: [SourceURL], as variant: SourceVariant
  ) async throws(JobFailure) -> StoredImage {
    guard job.submission.asksOrigin else { throw .notCached }
    var last = JobFailure.internal
    for (index, url) in urls.enumerated() {
      if index > 0 { reporter.countAttempt() }
      do throws(JobFailure) {
        return try await fetch(url, as: variant)
      } catch .fetch(.cancelled) {
        throw .fetch(.cancelled)
      } catch {
        last = error
      }
    }
    throw last
  }

  private func fetch(
    _ url: SourceURL, as variant: SourceVariant
  ) async throws(JobFailure) -> StoredImage {
    let configuration = crew.configuration
    let request = FetchRequest(
      url: url, headers: job.submission.headers,
      timeout: min(job.submission.timeout ?? configuration.timeout, configuration.timeout),
      maxBytes: min(job.submission.maxBytes ?? configuration.maxBytes, configuration.maxBytes))
    reporter.restart()
    let response: FetchedResponse
    do throws(FetchError) { response = try await crew.fetcher.fetch(request) } catch {
      throw .fetch(error)
    }
    reporter.responseCame(response)
    return try await keep(response.body, from: response, as: variant)
  }

  private func open(_ digest: ImageDigest) async throws(JobFailure) -> StoredBytes {
    try await storing { () async throws(StoreError) in
      guard let stored = try await crew.images.open(digest) else {
        throw .unavailable(detail: "the captured bytes are gone")
      }
      return stored
    }
  }

  private func keep(
    _ bytes: any ImageBytes, from response: FetchedResponse?, as variant: SourceVariant
  ) async throws(JobFailure) -> StoredImage {
    var limits = crew.configuration.limits
    limits.maxPixels = min(limits.maxPixels, job.submission.maxPixels ?? limits.maxPixels)
    let taken = try await crew.intake.take(bytes, limits: limits) { count, decodeTime in
      reporter.advance(to: count, decodeTime: decodeTime)
    }
    reporter.bodyCame()
    if let expected = job.submission.integrity, expected != taken.digest {
      throw .integrityMismatch(expected: expected, actual: taken.digest)
    }
    try await publish(taken)
    return StoredImage(
      description: taken.description, digest: taken.digest, bytes: taken.bytes, url: response?.url,
      variant: variant, modifiedAt: response?.lastModified(now: crew.now()) ?? crew.now())
  }

  private func publish(_ taken: ImageIntake.Taken) async throws(JobFailure) {
    let isKept = try await storing { () async throws(StoreError) in
      try await crew.keeper.keep(
        taken.staged, taken.digest, bytes: taken.bytes, as: job.id,
        limit: crew.configuration.maxStoredBytes)
    }
    guard isKept else { throw .fetch(.cancelled) }
  }

  private func storing<Value>(
    _ body: () async throws(StoreError) -> Value
  ) async throws(JobFailure) -> Value {
    do throws(StoreError) { return try await body() } catch {
      crew.log.error(
        "an image could not be stored", metadata: ["job": "\(job.id)", "error": "\(error)"])
      throw JobFailure(error)
    }
  }

  // MARK: The word to the store

  /// - Returns: false when the job is no longer ours.
  @discardableResult
  private func settle(
    _ change: @escaping @Sendable (inout Job, Timestamp, Duration) -> Void
  ) async -> Bool {
    let report = reporter.stop()
    let retention = job.submission.retention ?? crew.configuration.retention
    let shown = crew.board.peek(job.id)?.job.version ?? 0
    let moment = crew.now()
    var wait = Duration.milliseconds(50)
    while true {
      do throws(StoreError) {
        let settled = try await crew.store.update(job.id, under: claim) { job in
          job.note(report, shown: shown)
          change(&job, moment, retention)
          return true
        }
        guard let settled else { return false }
        crew.board.publish(settled)
        tell(settled)
        return true
      } catch {
        // The result is worth waiting for: nobody else has it. Given up when the service stops, and the next start
        // then runs the job again.
        crew.log.error(
          "the store takes no result", metadata: ["job": "\(job.id)", "error": "\(error)"])
        if Task.isCancelled { return true }
        try? await Task.sleep(for: wait)
        wait = min(wait * 2, .seconds(5))
      }
    }
  }

  private func tell(_ job: Job) {
    guard job.phase.isFinished else { return }
    crew.metrics.finished(job)
    var metadata: Logger.Metadata = [
      "job": "\(job.id)", "phase": "\(job.phase.rawValue)", "bytes": "\(job.progress.completed)",
      "attempts": "\(job.attempts)",
    ]
    if let failure = job.failure {
      metadata["code"] = "\(failure.code.rawValue)"
      metadata["error"] = "\(failure)"
    }
    if let started = job.startedAt, let finished = job.finishedAt {
      metadata["seconds"] = "\((finished - started).inSeconds)"
    }
    crew.log.info("job finished", metadata: metadata)
  }
}
