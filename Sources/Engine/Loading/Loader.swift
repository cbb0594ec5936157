internal import Jobs
internal import Logging

/// Carries a load out: from its source to a stored image or a failure, and to the end of all the jobs that waited.
///
/// In comes a load that has just begun; out goes its end, durable. Runs on the decode threads, by the load's priority.
struct Loader: Sendable {
  let loads: Loads
  let urls: URLLoader
  let files: FileLoader
  /// Nil where none are made.
  let variants: Variants?
  let completer: JobCompleter

  /// Never throws: whatever happens ends in the store, in memory, and in the log.
  ///
  /// - Parameter refusal: why the origin may not be asked; the cache may have the image still.
  func carryOut(_ load: Load, _ permits: OriginPermits, refusal: FetchError?) async {
    do throws(JobFailure) {
      let loaded = try await obtain(load, permits, refusal)
      var wanted = JobVariants()
      await wanted.make(
        for: load.waiters.map(\.job), of: loaded, by: variants, isShared: loads.rules.isShared)
      let waiters = await close(load, permits)
      // Some may have come meanwhile.
      await wanted.make(
        for: waiters.map(\.job), of: loaded, by: variants, isShared: loads.rules.isShared)
      let made = wanted
      await completer.complete(
        waiters, of: load, entry: loaded.entry, image: loaded.embedded, releasing: load.reservation
      ) { waiter in
        do throws(JobFailure) {
          let image = try made.image(loaded.image.seen(as: waiter.job.target), for: waiter.job)
          return .success(image, loaded.cache)
        } catch {
          return error == .fetch(.cancelled) ? .requeue : .failure(error)
        }
      }
    } catch {
      let waiters = await close(load, permits)
      // Cancelled while jobs wait for it: the service stops.
      let ending = error == .fetch(.cancelled) ? JobCompleter.Ending.requeue : .failure(error)
      await completer.complete(waiters, of: load, releasing: load.reservation) { _ in ending }
    }
    loads.end(load)
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
    let embedded = try await ingest.staging.keep(ingested, for: load)
    let image = StoredImage(
      description: ingested.description, digest: ingested.digest, bytes: ingested.bytes, url: nil,
      variant: .regular, modifiedAt: now())
    return LoadedImage(image: image, embedded: embedded, variants: ingested.variants)
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

/// Reads a stored image's bytes from their start, a piece at a time.
final class StoredImageReader: ImageBytes {
  private let stored: StoredBytes
  private let position = Position()
  private static let pieceSize = 64 << 10

  /// One task reads: the contract of ``ImageBytes``.
  private final class Position: @unchecked Sendable { var offset = 0 }

  init(_ stored: StoredBytes) { self.stored = stored }

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
