internal import Jobs
internal import Logging

/// Carries a load out: from its source to a stored image or a failure, and to the end of all the jobs that waited.
///
/// In comes a load that has just begun; out goes its end, durable. Runs on the decode threads, by the load's priority.
struct Loader: Sendable {
  let loads: Loads
  let urls: URLLoader
  let files: FileLoader
  let makers: VariantMakers
  let deliveries: JobDeliveries
  let completer: JobCompleter

  /// Never throws: whatever happens ends in the store, in memory, and in the log.
  ///
  /// - Parameter refusal: why the origin may not be asked; the cache may have the image still.
  func carryOut(_ load: Load, _ permits: OriginPermits, refusal: FetchError?) async {
    do throws(JobFailure) {
      let loaded = try await obtain(load, permits, refusal)
      // The picture is whole: what others want made of it, or who is still brought, takes nobody's time.
      load.pause()
      if loaded.wasCut { await requeuePatient(load, permits) }
      var wanted = JobVariants(of: loaded, in: makers)
      var entry = await makeVariants(&wanted, of: load, loaded)
      let waiters = await endReady(close(load, permits), of: load, loaded, &wanted, &entry)
      let others = await end(
        waiters, of: load, loaded, &wanted, entry: entry, gathers: !loaded.wasCut)
      if !others.isEmpty { _ = await end(others, of: load, loaded, &wanted) }
    } catch {
      var wasCut = false
      // It was cut for a stored response that is of no use by now.
      if case .fetch(.timeout) = error { wasCut = await requeuePatient(load, permits) }
      let waiters = await close(load, permits)
      // Cancelled while jobs wait for it: the service stops.
      let ending = error == .fetch(.cancelled) ? JobCompleter.Ending.requeue : .failure(error)
      let others = await completer.complete(
        waiters, of: load, releasing: load.reservation,
        gathers: error != .fetch(.cancelled) && !wasCut
      ) { _ in ending }
      if !others.isEmpty {
        await completer.complete(others, of: load, releasing: load.reservation) { _ in ending }
      }
    }
    loads.end(load)
  }

  /// Jobs that have time left have their own transfer, which goes on from what there is.
  /// - Returns: whether the transfer was cut for a fallback.
  @discardableResult
  private func requeuePatient(_ load: Load, _ permits: OriginPermits) async -> Bool {
    guard let patient = load.takePatient() else { return false }
    permits.release()
    await completer.complete(patient, of: load) { _ in .requeue }
    return true
  }

  /// Has the variants made that jobs want. Meanwhile those end that have all they want, so that no owner's many variants
  /// keep another's job waiting.
  /// - Returns: the response for the cache to keep; nil where these ends have stored it.
  private func makeVariants(
    _ wanted: inout JobVariants, of load: Load, _ loaded: LoadedImage
  ) async -> CacheEntry? {
    guard !load.wantedVariants.isEmpty else { return loaded.entry }
    load.stages?.begin(.variants)
    let joins = load.joins()
    async let plain = endPlain(of: load, loaded, joins)
    let entry = await makeInTurn(&wanted, of: load, loaded)
    load.endJoins()
    let others = await plain
    load.stages?.end(.variants)
    return entry == nil ? nil : others
  }

  /// Ends jobs that want the image alone, and whoever joins them, for as long as others' variants are made.
  private func endPlain(
    of load: Load, _ loaded: LoadedImage, _ joins: AsyncStream<[Load.Waiter]>
  ) async -> CacheEntry? {
    var none = JobVariants(of: loaded, in: makers)
    var entry = loaded.entry
    for await joined in joins {
      let ended = load.take(await ready(joined, &none, of: load))
      await endEarly(ended, of: load, loaded, none, &entry)
    }
    return entry
  }

  /// Makes the variants of jobs that want the same, and ends these, before those of others that are less urgent or want
  /// more. The last ones end with the load.
  private func makeInTurn(
    _ wanted: inout JobVariants, of load: Load, _ loaded: LoadedImage
  ) async -> CacheEntry? {
    // Stored by these ends and by those of ``endPlain(of:_:_:)``: whoever is first doesn't wait for the others.
    var entry = loaded.entry
    // What others want who join meanwhile comes last: with ever new ones there would be no end.
    var lists = load.variantLists
    while let list = load.next(of: lists) {
      lists.remove(list)
      await wanted.make(for: load.waiters(wanting: list).map(\.job))
      guard !lists.isEmpty else { break }
      let ended = load.take(await ready(load.waiters(wanting: list), &wanted, of: load))
      await endEarly(ended, of: load, loaded, wanted, &entry)
    }
    return entry
  }

  /// Ends those that have all they want, where something is still to be made for others, who came last.
  /// - Returns: those that are left.
  private func endReady(
    _ waiters: [Load.Waiter], of load: Load, _ loaded: LoadedImage, _ made: inout JobVariants,
    _ entry: inout CacheEntry?
  ) async -> [Load.Waiter] {
    guard !waiters.allSatisfy({ made.isMade(for: $0.job) }) else { return waiters }
    let ended = await ready(waiters, &made, of: load)
    await endEarly(ended, of: load, loaded, made, &entry)
    let claims = Set(ended.map(\.claim))
    return waiters.filter { !claims.contains($0.claim) }
  }

  /// Those that have all they want, and what they keep in the place of their image. One that fails, or is to ask the
  /// origin itself, doesn't end before the load: it would be brought to it again and again. Nor one whose image is to
  /// be delivered: that takes its receiver's time.
  private func ready(
    _ waiters: [Load.Waiter], _ made: inout JobVariants, of load: Load
  ) async -> [Load.Waiter] {
    let ready = waiters.filter { waiter in
      guard waiter.job.submission.deliveries.isEmpty, made.isMade(for: waiter.job) else {
        return false
      }
      return completer.outcomes.objection(to: made.image, for: waiter) == nil
    }
    await made.keepBundles(for: ready.map(\.job), of: load)
    return ready.filter { (try? made.image(for: $0.job)) != nil }
  }

  private func endEarly(
    _ ready: [Load.Waiter], of load: Load, _ loaded: LoadedImage, _ made: JobVariants,
    _ entry: inout CacheEntry?
  ) async {
    guard !ready.isEmpty else { return }
    await completer.complete(
      ready, of: load, entry: entry, image: load.dropsOriginal ? made.embedded : loaded.embedded
    ) { Self.ending(of: $0.job, loaded, made) }
    entry = nil
  }

  /// Ends jobs with the image that was loaded for them.
  /// - Returns: jobs that waited for it at other instances.
  private func end(
    _ waiters: [Load.Waiter], of load: Load, _ loaded: LoadedImage, _ wanted: inout JobVariants,
    entry: CacheEntry? = nil, gathers: Bool = false
  ) async -> [Load.Waiter] {
    // Some may have come since the others' variants were made.
    let jobs = waiters.map(\.job)
    await wanted.make(for: jobs)
    await wanted.keepBundles(for: jobs, of: load)
    let made = wanted
    let image = load.dropsOriginal ? made.embedded : loaded.embedded
    let gathers = gathers && load.request != nil
    // Nothing leaves that is not for the job.
    let delivering = waiters.filter { waiter in
      guard !waiter.job.submission.deliveries.isEmpty,
        let image = try? made.image(for: waiter.job)
      else { return false }
      return completer.outcomes.objection(to: image, for: waiter) == nil
    }
    guard !delivering.isEmpty else {
      return await completer.complete(
        waiters, of: load, entry: entry, image: image, releasing: load.reservation,
        gathers: gathers
      ) { Self.ending(of: $0.job, loaded, made) }
    }
    // Whoever has nothing delivered doesn't wait for that, and what came is kept whatever becomes of it.
    let delivered = Set(delivering.map(\.job.id))
    let others = waiters.filter { !delivered.contains($0.job.id) }
    var gathered: [Load.Waiter] = []
    if !others.isEmpty || entry != nil {
      gathered = await completer.complete(
        others, of: load, entry: entry, image: image, gathers: gathers
      ) { Self.ending(of: $0.job, loaded, made) }
    }
    load.stages?.begin(.deliver)
    let last = await deliveries.deliver(for: delivering, made) { waiter, outcome in
      _ = await completer.complete([waiter], of: load, image: image) {
        Self.ending(of: $0.job, loaded, made, outcome)
      }
    }
    load.stages?.end(.deliver)
    return gathered
      + (await completer.complete(
        last.map { [$0.waiter] } ?? [], of: load, image: image, releasing: load.reservation,
        gathers: gathers
      ) { Self.ending(of: $0.job, loaded, made, last?.outcome) })
  }

  private static func ending(
    of job: Job, _ loaded: LoadedImage, _ made: JobVariants,
    _ deliveries: JobDeliveries.Outcome? = nil
  ) -> JobCompleter.Ending {
    // Who named another picture than the stored one has what that is in the place of.
    if let error = loaded.replaced, let expected = job.submission.integrity,
      expected != loaded.image.digest
    {
      return .failure(.fetch(error))
    }
    do throws(JobFailure) {
      let image = try made.image(for: job)
      return .success(image, loaded.cache, try deliveries?.get() ?? [])
    } catch {
      return error == .fetch(.cancelled) ? .requeue : .failure(error)
    }
  }

  /// Lets no job join any more. A job that is being brought from the queue just now shares the load's end, a failure
  /// too: it would else ask the origin again at once.
  /// - Returns: the jobs to end.
  private func close(_ load: Load, _ permits: OriginPermits) async -> [Load.Waiter] {
    permits.release()
    await load.coalesced()
    let waiters = loads.seal(load)
    await completer.completeEarlyEnds(of: load)
    return waiters
  }

  private func obtain(
    _ load: Load, _ permits: OriginPermits, _ refusal: FetchError?
  ) async throws(JobFailure) -> LoadedImage {
    switch load.leader.submission.source {
    case .url: try await urls.obtain(for: load, permits, refusal: refusal)
    case .captured(let digest, _, _): try await files.obtain(captured: digest, for: load)
    case .local(let name): try await files.obtain(local: name, for: load)
    }
  }
}

/// Obtains an image whose bytes are here already: an uploaded one, or one that the operator has given a name.
struct FileLoader: Sendable {
  let images: any ImageStore
  /// Nil: there are none.
  let locals: (any LocalImages)?
  let ingest: ImageIngest
  /// Of one image.
  let maxBytes: Int
  let now: WallClock
  let log: Logger

  func obtain(
    captured digest: ImageDigest, for load: Load
  ) async throws(JobFailure) -> LoadedImage {
    try await ingest(open(captured: digest), for: load)
  }

  func obtain(local name: String, for load: Load) async throws(JobFailure) -> LoadedImage {
    guard let locals else { throw .localNotFound(name: name) }
    let stored: StoredBytes
    do throws(LocalImageError) { stored = try await locals.open(name) } catch {
      log.warning(
        "a local image can't be read", metadata: ["name": "\(name)", "error": "\(error)"])
      throw .localNotFound(name: name)
    }
    return try await ingest(stored, for: load)
  }

  private func open(captured digest: ImageDigest) async throws(JobFailure) -> StoredBytes {
    do throws(StoreError) {
      if let stored = try await images.open(digest) { return stored }
      throw .unavailable(detail: "the captured bytes are gone")
    } catch {
      log.error("captured bytes can't be read", metadata: ["error": "\(error)"])
      throw JobFailure(error)
    }
  }

  private func ingest(
    _ stored: StoredBytes, for load: Load
  ) async throws(JobFailure) -> LoadedImage {
    await ingest.announce(bytes: stored.count, of: load)
    guard stored.count <= maxBytes else { throw .fetch(.tooLarge(limit: maxBytes)) }
    let staged = try await ingest.staging.stage(for: load)
    let ingested = try await ingest.ingest(StoredImageReader(stored), to: staged, for: load)
    let image = StoredImage(
      description: ingested.description, digest: ingested.digest, bytes: ingested.bytes, url: nil,
      variant: .regular, modifiedAt: now())
    var loaded = LoadedImage(image: image)
    try await ingest.staging.keep(ingested, in: &loaded, for: load)
    return loaded
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

/// Reads a stored image's bytes, a piece at a time.
final class StoredImageReader: ImageBytes {
  private let stored: StoredBytes
  private let position = Position()
  private static let pieceSize = 64 << 10

  /// One task reads: the contract of ``ImageBytes``.
  private final class Position: @unchecked Sendable { var offset = 0 }

  init(_ stored: StoredBytes, from offset: Int = 0) {
    self.stored = stored
    position.offset = offset
  }

  func next() async throws(FetchError) -> [UInt8]? {
    if Task.isCancelled { throw .cancelled }
    let count = min(Self.pieceSize, stored.count - position.offset)
    guard count > 0 else { return nil }
    let piece = stored.read(at: position.offset, count: count)
    guard piece.count == count else {
      throw .truncated(received: position.offset + piece.count, expected: stored.count)
    }
    position.offset += count
    return piece
  }
}
