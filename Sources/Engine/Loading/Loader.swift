internal import Jobs
internal import Logging

/// Carries out a load, from its source to a stored image or a failure.
///
/// Input: a load that has just started. Output: its durable end. One transaction ends all jobs that want only the image;
/// the others get a pending result and continue in the ``Finisher``. Runs on the decode threads, with the load's priority.
struct Loader: Sendable {
  let loads: Loads
  let urls: URLLoader
  let files: FileLoader
  let finisher: Finisher
  let completer: JobCompleter

  /// Never throws: every outcome is stored, published and logged.
  ///
  /// - Parameter refusal: the reason why no request may be sent to the origin; the cache may still have the image.
  func carryOut(_ load: Load, _ permits: OriginPermits, refusal: FetchError?) async {
    do throws(JobFailure) {
      let loaded = try await obtain(load, permits, refusal)
      // The image is complete: the time to store it does not count against the jobs' timeouts.
      load.pause()
      if loaded.replacesTimeout { await requeueJobsWithTimeLeft(load, permits) }
      await end(load, permits, with: loaded)
    } catch {
      var wasCut = false
      // The transfer was stopped for a stored response that cannot be used any more.
      if case .fetch(.timeout) = error { wasCut = await requeueJobsWithTimeLeft(load, permits) }
      await end(load, permits, after: error, claimsEqual: !wasCut)
    }
    loads.end(load)
  }

  /// Requeues the jobs that still have time. Their next transfer resumes after the received bytes.
  /// - Returns: whether the transfer was stopped for a fallback.
  @discardableResult
  private func requeueJobsWithTimeLeft(_ load: Load, _ permits: OriginPermits) async -> Bool {
    guard let patient = load.removeJobsWithTimeLeft() else { return false }
    permits.release()
    await completer.complete(patient, of: load) { _ in .requeue }
    return true
  }

  /// Lets no job join any more. A job that is being moved from the queue shares the load's end, even a failure: otherwise
  /// it would ask the origin again immediately.
  /// - Returns: the jobs to end.
  private func close(_ load: Load, _ permits: OriginPermits) async -> [Load.Waiter] {
    permits.release()
    await load.coalesced()
    let waiters = loads.seal(load)
    await completer.completeEarlyEnds(of: load)
    return waiters
  }

  private func end(
    _ load: Load, _ permits: OriginPermits, after failure: JobFailure, claimsEqual: Bool
  ) async {
    let waiters = await close(load, permits)
    // A load that is cancelled while jobs wait for it: the service stops.
    let isStopped = failure == .fetch(.cancelled)
    let ending = isStopped ? JobCompleter.Ending.requeue : .failure(failure)
    let left = await completer.complete(
      waiters, of: load, releasing: load.reservation, claimsEqual: claimsEqual && !isStopped
    ) { _ in ending }
    guard !left.claimedEqual.isEmpty else { return }
    await completer.complete(left.claimedEqual, of: load, releasing: load.reservation) { _ in ending
    }
  }

  private func end(_ load: Load, _ permits: OriginPermits, with loaded: LoadedImage) async {
    let waiters = await close(load, permits)
    var end = await LoadEnd.make(of: loaded, for: load, by: finisher.renderer)
    var claimedEqual = await self.end(
      waiters, of: load, &end, claimsEqual: !loaded.replacesTimeout && load.request != nil)
    if !claimedEqual.isEmpty {
      claimedEqual = await self.end(claimedEqual, of: load, &end, claimsEqual: false)
    }
  }

  /// - Returns: jobs that waited for this load at other instances.
  private func end(
    _ waiters: [Load.Waiter], of load: Load, _ end: inout LoadEnd, claimsEqual: Bool
  ) async -> [Load.Waiter] {
    let left = await completer.complete(
      waiters, of: load, entry: end.loaded.entry,
      image: end.bundle?.embedded ?? end.loaded.embedded, releasing: load.reservation,
      claimsEqual: claimsEqual
    ) { end.ending(of: $0.job) }
    end.loaded.entry = nil
    finisher.begin(left.unfinished, after: load)
    return left.claimedEqual
  }

  private func obtain(
    _ load: Load, _ permits: OriginPermits, _ refusal: FetchError?
  ) async throws(JobFailure) -> LoadedImage {
    await load.awaitPredecessor()
    switch load.leader.submission.source {
    case .url: return try await urls.obtain(for: load, permits, refusal: refusal)
    case .captured(let digest, _, _): return try await files.obtain(captured: digest, for: load)
    case .local(let name): return try await files.obtain(local: name, for: load)
    }
  }
}

/// Reads an image whose bytes are on this machine: an uploaded one, or one from the operator's folder of local images.
struct FileLoader: Sendable {
  let images: any ImageStore
  /// Nil if the operator configured none.
  let locals: (any LocalImages)?
  let ingest: ImageIngest
  /// The largest image, in bytes.
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
        "failed to read a local image", metadata: ["name": "\(name)", "error": "\(error)"])
      throw .localNotFound(name: name)
    }
    return try await ingest(stored, for: load)
  }

  private func open(captured digest: ImageDigest) async throws(JobFailure) -> StoredBytes {
    do throws(StoreError) {
      if let stored = try await images.open(digest) { return stored }
      throw .unavailable(detail: "the captured bytes are gone")
    } catch {
      log.error("failed to read an uploaded image", metadata: ["error": "\(error)"])
      throw JobFailure(error)
    }
  }

  private func ingest(
    _ stored: StoredBytes, for load: Load
  ) async throws(JobFailure) -> LoadedImage {
    await ingest.announce(bytes: stored.count, of: load)
    guard stored.count <= maxBytes else { throw .fetch(.tooLarge(limit: maxBytes)) }
    let staged = try await ingest.staging.stage(for: load.leader.id)
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
  /// Returns the image as a job sees it whose URL is `target`: the regular or the low-data one.
  func seen(as target: URLCandidate) -> StoredImage {
    var image = self
    image.variant = target == .lowData ? .lowData : .regular
    image.isKept = true
    return image
  }
}

/// Reads a stored image's bytes in pieces of 64 KiB.
final class StoredImageReader: ImageBytes {
  private let stored: StoredBytes
  private let position = Position()
  private static let pieceSize = 64 << 10

  /// Only one task reads: the contract of ``ImageBytes``.
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
