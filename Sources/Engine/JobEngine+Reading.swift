public import Jobs

/// What only looks.
extension JobEngine {
  /// The job, if it is in memory and this caller may see it. Nil says nothing: ask ``job(_:for:)``.
  public func peek(_ id: JobID, for caller: Caller) -> JobSnapshot? {
    guard let snapshot = snapshots.current(id), caller.sees(snapshot.job), isAlive(snapshot.job)
    else { return nil }
    return snapshot
  }

  /// The job as it is.
  public func job(_ id: JobID, for caller: Caller) async throws(JobsError) -> JobSnapshot {
    if let snapshot = snapshots.current(id) { return try checked(snapshot, caller) }
    let found: Job?
    do throws(JobsError) {
      found = try await storing { () async throws(StoreError) in try await store.job(id) }
    } catch {
      // What is loaded here goes on, and is told of, while the store is away.
      guard case .store(.unavailable) = error, snapshots.isPinned(id),
        let snapshot = snapshots.peek(id)
      else { throw error }
      return try checked(snapshot, caller)
    }
    guard let found, let snapshot = snapshots.publish(found, .read)
    else { throw .unknownJob }
    return try checked(snapshot, caller)
  }

  /// Returns the reason why a queued job, or a job whose image is loaded, waits; nil for any other job. Reads memory only.
  public func waiting(of job: Job) -> WaitingFor? {
    if job.phase == .loading, let pending = job.pending {
      return WaitingFor(pending.isRendered(for: job.submission) ? .deliver : .render, origin: nil)
    }
    guard job.phase == .queued else { return nil }
    let (moment, origin) = (now(), job.origin)
    if let due = job.notBefore, due > moment {
      return WaitingFor(.retry, origin: origin, until: due)
    }
    if storage.isFull { return WaitingFor(.storage, origin: origin) }
    if let origin, let hold = origins.hold(on: origin) {
      return WaitingFor(hold.reason, origin: origin, until: hold.time.map { moment + $0 })
    }
    return WaitingFor(.worker, origin: origin, ahead: positions.ahead(of: job))
  }

  /// The newest preview of what a job is loading; nil: there is none yet, or no more. The caller has seen the job.
  public func preview(of id: JobID) -> Preview? {
    loads.loads(of: id).lazy.compactMap(\.tracker.preview).first
  }

  /// The same of a job that another instance loads, where that one can be reached.
  public func previewElsewhere(of id: JobID, authorization: String?) async -> Preview? {
    guard let peers, loads.loads(of: id).isEmpty,
      let address = try? await store.address(ofLoading: id)
    else { return nil }
    return await peers.preview(of: id, at: address, authorization: authorization)
  }

  /// The jobs that fit, newest first.
  public func jobs(_ query: JobQuery) async throws(JobsError) -> JobPage {
    var wanted = query
    wanted.hostSpelling = query.host.map { fetcher.spelling(of: $0) }
    var page = try await storing { [wanted] () async throws(StoreError) in
      try await store.jobs(wanted)
    }
    let last = page.last ?? page.jobs.last?.id
    page.jobs = page.jobs.map { job in
      // Progress is known in memory only.
      guard let shown = snapshots.peek(job.id)?.job, shown.version > job.version else {
        return job
      }
      return shown
    }
    // A purged batch's are in the store until all are removed.
    page.jobs.removeAll { !isAlive($0) }
    if page.hasMore, page.jobs.last?.id != last { page.last = last }
    return page
  }

  /// The job as it is when the goal is met, or the time is over.
  public func wait(
    _ id: JobID, for caller: Caller, until goal: WaitCondition, atMost limit: Duration
  ) async throws(JobsError) -> JobSnapshot {
    let deadline = ContinuousClock.now + limit
    while true {
      let snapshot = try await job(id, for: caller)
      if goal.isMet(by: snapshot.job) || deadline <= .now || Task.isCancelled
        || snapshots.isClosed
      {
        return snapshot
      }
      followElsewhere([snapshot.job])
      await snapshots.wait(for: goal, of: id, until: deadline)
    }
  }

  /// Moves bytes out of memory into a file, which is gone once nobody holds it.
  public func file(_ bytes: [UInt8]) async throws(JobsError) -> StoredBytes {
    try await storing { () async throws(StoreError) in try await spool.file(bytes) }
  }

  /// An image's bytes; nil when they are no longer kept. What is asked for often comes from memory.
  public func openImage(_ digest: ImageDigest) async throws(JobsError) -> StoredBytes? {
    try await storing { () async throws(StoreError) in try await opener.open(digest) }
  }
}
