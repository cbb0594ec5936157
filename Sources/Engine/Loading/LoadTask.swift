internal import Jobs
internal import Logging

/// Carries one load out: from its source to a stored image or a failure, and the word to all its members about it.
struct LoadTask: Sendable {
  let load: Load
  let crew: Crew
  let permits: OriginPermits

  /// What a source gave.
  struct Obtained: Sendable {
    var image: StoredImage
    var cache: CacheOutcome?
    /// For the cache to keep.
    var entry: CacheEntry?
    /// The image's bytes, where the job store is to keep them; else they are kept already.
    var embedded: EmbeddedImage?
  }

  /// Never throws: whatever happens ends in the store, in memory, and in the log.
  ///
  /// - Parameter refusal: why the origin may not be asked; the cache may have the image still.
  func carryOut(refusal: FetchError?) async {
    let completer = JobCompleter(crew: crew)
    do throws(JobFailure) {
      let obtained = try await obtain(refusal)
      let waiters = await close()
      await completer.complete(
        waiters, of: load, entry: obtained.entry, image: obtained.embedded,
        releasing: load.reservation
      ) {
        .success(obtained.image.seen(as: $0.job.target), obtained.cache)
      }
    } catch {
      let waiters = await close()
      // Cancelled with members left: the service stops.
      let ending = error == .fetch(.cancelled) ? JobCompleter.Ending.requeue : .failure(error)
      await completer.complete(waiters, of: load, releasing: load.reservation) { _ in ending }
    }
    crew.loads.end(load)
  }

  /// Those whom its end concerns, a failure too: who was on the way to it would else have to ask again at once.
  private func close() async -> [Load.Waiter] {
    permits.release()
    await load.coalesced()
    let waiters = crew.loads.seal(load)
    await crew.completeEarlyEnds(from: load)
    return waiters
  }

  private func obtain(_ refusal: FetchError?) async throws(JobFailure) -> Obtained {
    switch load.leader.submission.source {
    case .url:
      return try await URLLoad(load: load, crew: crew, permits: permits, refusal: refusal)
        .obtain()
    case .captured(let digest, let count, _):
      load.tracker.expect(total: count)
      load.received(bytes: count)
      await crew.completeEarlyEnds(from: load)
      return try await take(open(digest))
    case .local(let name):
      let stored = try await open(local: name)
      load.tracker.expect(total: stored.count)
      load.received(bytes: stored.count)
      await crew.completeEarlyEnds(from: load)
      return try await take(stored)
    }
  }

  private func take(_ stored: StoredBytes) async throws(JobFailure) -> Obtained {
    guard stored.count <= crew.configuration.maxBytes else {
      throw .fetch(.tooLarge(limit: crew.configuration.maxBytes))
    }
    let staged = try await storing { () async throws(StoreError) in try await crew.images.stage() }
    let ingested = try await crew.ingest.take(
      StoredImageReader(stored), to: staged, for: load, crew)
    let embedded = try await keep(ingested)
    let image = StoredImage(
      description: ingested.description, digest: ingested.digest, bytes: ingested.bytes, url: nil,
      variant: .regular, modifiedAt: crew.now())
    return Obtained(image: image, embedded: embedded)
  }

  private func open(_ digest: ImageDigest) async throws(JobFailure) -> StoredBytes {
    try await storing { () async throws(StoreError) in
      guard let stored = try await crew.images.open(digest) else {
        throw .unavailable(detail: "the captured bytes are gone")
      }
      return stored
    }
  }

  private func open(local name: String) async throws(JobFailure) -> StoredBytes {
    guard let locals = crew.locals else { throw .localNotFound(name: name) }
    do throws(LocalImageError) { return try await locals.open(name) } catch {
      crew.log.warning(
        "a local image can't be read", metadata: ["name": "\(name)", "error": "\(error)"])
      throw .localNotFound(name: name)
    }
  }
}

// What every kind of source shares.
extension LoadTask {
  /// Sees to it that the image outlives its load. What no job waits for is held by nothing that ends with the load: it
  /// is published.
  /// - Returns: the image, where the job store is to keep it when the load ends; nil: it is published.
  func keep(_ ingested: ImageIngest.Ingested) async throws(JobFailure) -> EmbeddedImage? {
    if !load.isBackground, let content = ingested.staged.content,
      content.count <= crew.store.largestEmbedded
    {
      return EmbeddedImage(digest: ingested.digest, content: content)
    }
    let isKept = try await storing { () async throws(StoreError) in
      try await crew.keeper.keep(
        ingested.staged, ingested.digest, bytes: ingested.bytes, as: load.reserving(),
        limit: crew.roomForImages)
    }
    guard isKept else { throw .fetch(.cancelled) }
    return nil
  }

  func storing<Value>(
    _ body: () async throws(StoreError) -> Value
  ) async throws(JobFailure) -> Value {
    do throws(StoreError) { return try await body() } catch {
      crew.log.error(
        "an image could not be stored", metadata: ["job": "\(load.leader.id)", "error": "\(error)"])
      throw JobFailure(error)
    }
  }
}

extension StoredImage {
  /// The same image for a job that asked for it as `target`.
  func seen(as target: URLCandidate) -> StoredImage {
    var image = self
    image.variant = target == .lowData ? .lowData : .regular
    image.isKept = true
    return image
  }
}
