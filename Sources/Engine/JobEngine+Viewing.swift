package import Jobs

/// Views: requests for an image by its URL, without a job of the client's.
extension JobEngine {
  /// How long views get the same failure, so that a page that is reloaded often does not repeat a failing request each
  /// time.
  static let failureDuration = Duration.seconds(10)

  private static let viewer = Caller(owner: .view, isAdmin: false)

  /// Returns the job that answers this view, once it has finished or `limit` has passed.
  ///
  /// Equal views share a job, whatever sizes they ask for; its priority is the highest of theirs. If no job fits, a new
  /// one is submitted. The job is cancelled when all views that wait for it are cancelled, so that abandoned views
  /// don't occupy workers.
  package func view(_ new: NewJob, atMost limit: Duration) async throws(JobsError) -> JobSnapshot {
    let end = ContinuousClock.now + limit
    var snapshot = try await jobForView(new)
    if try await waitForView(&snapshot, new, atMost: limit) { return snapshot }
    // The job was cancelled because the other views ended as this one arrived, or it failed because of their variants.
    snapshot = try await jobForView(new)
    _ = try await waitForView(&snapshot, new, atMost: ContinuousClock.now.duration(to: end))
    return snapshot
  }

  /// - Returns: false if the job ended in a way that says nothing about this view; try again with another job.
  private func waitForView(
    _ snapshot: inout JobSnapshot, _ new: NewJob, atMost limit: Duration
  ) async throws(JobsError) -> Bool {
    let id = snapshot.job.id
    guard !snapshot.job.phase.isFinished, limit > .zero else { return true }
    caching.views.addViewer(of: id)
    let outcome: Result<JobSnapshot, JobsError>
    do throws(JobsError) {
      outcome = .success(
        try await wait(id, for: Self.viewer, until: .finished, atMost: limit))
    } catch {
      outcome = .failure(error)
    }
    let isLast = caching.views.removeViewer(of: id)
    snapshot = try outcome.get()
    if isLast, Task.isCancelled, !snapshot.job.phase.isFinished {
      snapshot = try await cancel(id, for: Self.viewer)
    }
    let job = snapshot.job
    return Task.isCancelled || job.phase != .cancelled && !job.mayHaveFailedByVariants(notOf: new)
  }

  private func jobForView(_ new: NewJob) async throws(JobsError) -> JobSnapshot {
    var (view, isOfVariants) = (new.fingerprint, false)
    while true {
      let last = caching.views.job(for: view)
      if let last, let snapshot = try await existingJob(last, for: new) {
        guard !isOfVariants, snapshot.job.mayHaveFailedByVariants(notOf: new) else {
          return snapshot
        }
        (view, isOfVariants) = (new.fingerprintWithVariants, true)
        continue
      }
      let outcome = await caching.views.submit(view, after: last) {
        do throws(JobsError) {
          let jobs = try await self.submit([new], by: Self.viewer, key: nil)
          return jobs.first?.snapshot.map { .success($0) } ?? .failure(.unknownJob)
        } catch {
          return .failure(error)
        }
      }
      // Otherwise an equal view has submitted a job since.
      if let outcome { return try outcome.get() }
    }
  }

  private func existingJob(_ id: JobID, for new: NewJob) async throws(JobsError) -> JobSnapshot? {
    do throws(JobsError) {
      let snapshot = try await job(id, for: Self.viewer)
      guard snapshot.job.answersViews(at: now()) else { return nil }
      guard !snapshot.job.phase.isFinished, snapshot.job.priority < new.priority else {
        return snapshot
      }
      return try await edit(id, for: Self.viewer, priority: new.priority, tags: nil)
    } catch  where error == .unknownJob {
      return nil
    }
  }
}

extension Job {
  /// Whether a view may use this job instead of a new one.
  func answersViews(at moment: Timestamp) -> Bool {
    switch phase {
    case .queued, .loading: return true
    case .cancelled: return false
    case .failure:
      return finishedAt.map { $0 + JobEngine.failureDuration > moment } ?? false
    case .success:
      guard let image, image.isKept else { return false }
      switch submission.cacheMode {
      case .default: return cache?.freshUntil.map { $0 > moment } ?? false
      // These modes accept stored responses only, fresh or stale.
      case .forceCache, .onlyIfCached: return cache?.isOfStored ?? false
      case .noStore, .reload, .noCache: return false
      }
    }
  }

  /// Whether the failure may come from variants that the new view does not ask for.
  fileprivate func mayHaveFailedByVariants(notOf new: NewJob) -> Bool {
    guard case .codec? = failure, !submission.variants.isEmpty else { return false }
    return submission.variants.map(\.recipe) != new.submission.variants.map(\.recipe)
  }
}

extension CacheOutcome {
  /// Whether the response is, or was, stored in the cache.
  fileprivate var isOfStored: Bool { status == .hit || status == .stale || freshUntil != nil }
}

extension NewJob {
  /// Equal for views that one job can answer. Priority and sizes are left out.
  fileprivate var fingerprint: Fingerprint { Fingerprint(of: parts) }

  /// Like ``fingerprint``, with the sizes.
  fileprivate var fingerprintWithVariants: Fingerprint {
    Fingerprint(of: parts + ["variants"] + submission.variants.map { "\($0.recipe)" })
  }

  private var parts: [String] {
    let source: [String] =
      switch submission.source {
      case .url(let url, let lowData): ["url", url.string, lowData?.string ?? ""]
      case .local(let name): ["local", name]
      case .captured(let digest, _, let type): ["captured", digest.hex, type]
      }
    // The number of tags separates them from the options.
    return source + ["\(tags.count)"] + tags + [submission.savesData ? "saves data" : ""]
      + submission.viewParts
  }
}
