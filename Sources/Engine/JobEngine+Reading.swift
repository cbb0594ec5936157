package import Jobs

/// Operations that only read.
extension JobEngine {
  /// Returns the job if it is in memory and the caller may see it. Nil does not mean that the job is unknown: use
  /// ``job(_:for:)`` then.
  package func peek(_ id: JobID, for caller: Caller) -> JobSnapshot? {
    guard let snapshot = events.snapshots.current(id), caller.sees(snapshot.job),
      isAlive(snapshot.job)
    else { return nil }
    return snapshot
  }

  /// Returns the job as it is now, from memory or from the store.
  package func job(_ id: JobID, for caller: Caller) async throws(JobsError) -> JobSnapshot {
    if let snapshot = events.snapshots.current(id) { return try checked(snapshot, caller) }
    let found = try await withStore { () async throws(StoreError) in try await store.job(id) }
    guard let found, let snapshot = events.snapshots.publish(found, .read)
    else { throw .unknownJob }
    return try checked(snapshot, caller)
  }

  /// Returns the reason why a queued job, or a job whose image is loaded, waits; nil for any other job. Reads memory only.
  package func waiting(of job: Job) -> WaitingFor? {
    if job.phase == .loading, let pending = job.pending {
      return WaitingFor(pending.isRendered(for: job.submission) ? .deliver : .render, origin: nil)
    }
    guard job.phase == .queued else { return nil }
    let (moment, origin) = (now(), job.origin)
    if let due = job.notBefore, due > moment {
      return WaitingFor(.retry, origin: origin, until: due)
    }
    if caching.storage.isFull { return WaitingFor(.storage, origin: origin) }
    if let origin, let hold = queue.origins.waitReason(for: origin) {
      return WaitingFor(hold.reason, origin: origin, until: hold.time.map { moment + $0 })
    }
    return WaitingFor(.worker, origin: origin, ahead: queue.positions.ahead(of: job))
  }

  /// Returns the newest preview of a job that is loaded here; nil if there is none. The caller has checked that the
  /// client may see the job.
  package func preview(of id: JobID) -> Preview? {
    loading.loads.loads(of: id).lazy.compactMap(\.tracker.preview).first
  }

  /// Returns the jobs that match the query, newest first.
  package func jobs(_ query: JobQuery) async throws(JobsError) -> JobPage {
    var wanted = query
    wanted.hostSpelling = query.host.map { parts.fetcher.canonicalSpelling(of: $0) }
    var page = try await withStore { [wanted] () async throws(StoreError) in
      try await store.jobs(wanted)
    }
    let last = page.last ?? page.jobs.last?.id
    page.jobs = page.jobs.compactMap { job in
      // Newer progress is known in memory only, and a change may not have reached the memory yet.
      guard let shown = events.snapshots.peek(job.id)?.job, shown.version != job.version else {
        return job
      }
      return events.snapshots.publish(job, .read)?.job
    }
    // The store deletes the jobs of a purged batch one after the other; those that are left are hidden.
    page.jobs.removeAll { !isAlive($0) }
    if page.hasMore, page.jobs.last?.id != last { page.last = last }
    return page
  }

  /// Returns the job once the condition is met or `limit` has passed.
  package func wait(
    _ id: JobID, for caller: Caller, until goal: WaitCondition, atMost limit: Duration
  ) async throws(JobsError) -> JobSnapshot {
    let deadline = ContinuousClock.now + limit
    while true {
      let snapshot = try await job(id, for: caller)
      if goal.isMet(by: snapshot.job) || deadline <= .now || Task.isCancelled
        || events.snapshots.isClosed
      {
        return snapshot
      }
      requestRemoteProgress(of: [snapshot.job])
      await events.snapshots.wait(for: goal, of: id, until: deadline)
    }
  }

  /// Moves bytes out of memory into a temporary file, which is deleted when it is no longer open.
  package func file(_ bytes: [UInt8]) async throws(JobsError) -> StoredBytes {
    try await withStore { () async throws(StoreError) in try await parts.spool.unnamedFile(bytes) }
  }

  /// Returns the bytes of a successful job's image. Bytes that are often read come from memory.
  /// - Throws: `.imageGone`; `.unknownJob` if the job was purged.
  package func openImage(of job: Job) async throws(JobsError) -> StoredBytes {
    try await reading(imageOf: job) { () async throws(JobsError) -> StoredBytes in
      guard let image = job.image, let bytes = try await openImage(image.digest) else {
        throw .imageGone
      }
      return bytes
    }
  }

  /// Returns an image's bytes; nil if they are no longer stored.
  func openImage(_ digest: ImageDigest) async throws(JobsError) -> StoredBytes? {
    try await withStore { () async throws(StoreError) in try await renditions.opener.open(digest) }
  }

  /// Reads a job's image. A purge can delete it after `job` was read, and before this instance receives the event.
  private func reading<Value>(
    imageOf job: Job, _ body: () async throws(JobsError) -> Value
  ) async throws(JobsError) -> Value {
    do throws(JobsError) { return try await body() } catch {
      guard error == .imageGone else { throw error }
      let stored = try await withStore { () async throws(StoreError) in
        try await store.job(job.id)
      }
      throw stored.map(isAlive) == true ? .imageGone : .unknownJob
    }
  }
}

/// Variants of stored images.
extension JobEngine {
  /// The formats that variants can be written in. Empty if variants are not offered.
  package var outputFormats: Set<OutputFormat> {
    renditions.variants?.rendering.renderer.formats ?? []
  }

  /// Returns what a variant of an image will be, without rendering it; nil if variants are not offered.
  package func rendition(of image: StoredImage, as variant: Variant) -> Rendition? {
    renditions.variants.map { Rendition(of: image, as: variant, by: $0.rendering.renderer) }
  }

  /// Returns the bytes of a rendition of the job's image, from the cache or rendered now.
  ///
  /// Equal requests at the same time share one rendering. It stops when the tasks of all of them are cancelled.
  /// Renditions for a `no-store` job are not cached. If the original was dropped, only the job's own variants are
  /// available.
  /// - Throws: `.renderingsFull`, `.imageGone`, `.unrenderable`, `.abandoned`, `.draining`, `.store`; `.unknownJob` if the
  ///   job was purged.
  package func open(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    try await reading(imageOf: job) { () async throws(JobsError) in
      try await bytes(of: rendition, for: job)
    }
  }

  private func bytes(
    of rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    guard let variants = renditions.variants else {
      throw .unrenderable(.unsupportedFormat(name: nil))
    }
    var rendition = rendition
    if let image = job.image {
      let wanted = job.submission.variants
      let place = wanted.firstIndex { variants.rendition(of: image, as: $0).id == rendition.id }
      if let bundle = image.bundle {
        guard let place, place < image.variants.count,
          let whole = try await openImage(bundle.digest)
        else { throw .imageGone }
        return RenderedBytes(
          whole.part(image.range(of: place)), entityTag: image.variants[place].entityTag)
      }
      // The job reports the entity tag of the bytes that were rendered together with its other variants. So the scale
      // has to be the same.
      if let place {
        rendition = variants.rendition(of: image, as: variants.scaled(wanted, of: image)[place])
      }
    }
    return try await variants.bytes(
      of: configuration.cache.isShared ? rendition : rendition.unshared(for: job.owner),
      for: job.owner, at: job.priority, keeping: job.submission.cacheMode != .noStore)
  }
}

/// Placeholders for images that are not available.
extension JobEngine {
  /// Returns the operator's placeholder image, or the built-in one.
  package func placeholderImage(for placeholder: Placeholder) -> PlaceholderImage {
    configuration.placeholders[placeholder] ?? .builtIn(for: placeholder)
  }

  /// Returns the bytes of a placeholder's rendition. Placeholders have the lowest priority.
  /// - Throws: `.renderingsFull`, `.unrenderable`, `.abandoned`, `.draining`.
  package func openPlaceholder(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    guard let variants = renditions.variants else {
      throw .unrenderable(.unsupportedFormat(name: nil))
    }
    return try await variants.placeholder(rendition, for: job.owner, at: .veryLow)
  }

  /// Returns what a variant of a placeholder will be, without rendering it; nil if variants are not offered.
  package func rendition(of image: PlaceholderImage, as variant: Variant) -> Rendition? {
    renditions.variants.map { Rendition(of: image, as: variant, by: $0.rendering.renderer) }
  }
}
