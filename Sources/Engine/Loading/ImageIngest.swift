internal import Jobs
internal import Logging

/// Receives an image: each piece of bytes is hashed, written to the spool and decoded as it arrives.
///
/// Input: pieces of bytes. Output: an image that was decoded to its end and staged. Runs on the decode threads; hashing,
/// writing and decoding of one piece follow each other without a change of thread.
struct ImageIngest: Sendable {
  let codec: any ImageCodec
  let limits: DecodeLimits
  let memory: DecodeMemory
  let staging: ImageStaging
  let completer: JobCompleter
  let lastDecode: LastDecode

  /// An image that was decoded to its end. It is staged, and not yet published.
  struct Ingested: Sendable {
    var description: ImageDescription
    var digest: ImageDigest
    var bytes: Int
    var staged: any StagedImage
    /// The variants that the decode should have made.
    var wanted: [VariantRequest]
    /// The variants that the decode made.
    var variants: [VariantRequest: [UInt8]]
  }

  /// Sets the expected number of bytes, and fails the jobs whose limit is lower.
  func announce(bytes count: Int, of load: Load) async {
    load.tracker.expect(total: count)
    load.received(bytes: count)
    await completer.completeEarlyEnds(of: load)
  }

  /// Receives the bytes of an image until its end.
  /// - Parameters:
  ///   - source: the bytes, or those that follow `kept`.
  ///   - kept: bytes that the stage already has; they are only decoded.
  ///   - load: receives the header and the byte count. Its cancellation stops the ingest.
  func ingest(
    _ source: any ImageBytes, after kept: (any ImageBytes)? = nil, to staged: any StagedImage,
    for load: Load
  ) async throws(JobFailure) -> Ingested {
    do throws(JobFailure) {
      return try await decode(source, after: kept, to: staged, for: load)
    } catch {
      if case .codec(.crashed(let how)) = error { logCrash(how, of: staged) }
      throw error
    }
  }

  /// Logs the crash with the digest of the received bytes, by which an operator finds them.
  private func logCrash(_ how: String, of staged: any StagedImage) {
    staging.log.warning(
      "an image crashed its decoder",
      metadata: ["how": "\(how)", "sha256": "\(staged.finish().hex)"])
  }

  private func decode(
    _ source: any ImageBytes, after kept: (any ImageBytes)?, to staged: any StagedImage,
    for load: Load
  ) async throws(JobFailure) -> Ingested {
    let wanted = load.wantedVariants
    var decode = Decode(memory: memory, load: load, completer: completer) {
      codec.makeDecoder(limits: limits, variants: wanted)
    }
    var count = 0
    load.stages?.begin(.decode)
    while let piece = try await Decode.next(of: kept) {
      count += piece.count
      try await decode.proceed(with: piece)
    }
    while let piece = try await decode.piece(of: source) {
      count += piece.count
      do throws(StoreError) { try staged.write(piece) } catch { throw JobFailure(error) }
      if load.tracker.isComplete(with: count) {
        decode.append(last: piece)
      } else {
        try await decode.proceed(with: piece)
      }
      load.tracker.advance(to: count, decodeTime: decode.time)
      load.received(bytes: max(count, source.codedCount))
    }
    // Bytes after the end of the content coding count too.
    load.received(bytes: source.codedCount)
    guard count > 0 else { throw .fetch(.noData) }
    load.tracker.bodyReceived()
    load.stages?.end(.fetch)
    let description = try await decode.finish(from: staged)
    load.stages?.end(.decode)
    lastDecode.record()
    load.tracker.advance(to: count, decodeTime: decode.time)
    let made = zip(wanted, decode.variants).compactMap { request, file in
      file.map { (request, $0) }
    }
    return Ingested(
      description: description, digest: staged.finish(), bytes: count, staged: staged,
      wanted: wanted, variants: Dictionary(made) { first, _ in first })
  }
}

/// Stages an image's bytes while it is loaded, and stores them when the load ends.
struct ImageStaging: Sendable {
  let spool: any ImageSpool
  let images: any ImageStore
  let keeper: ImageLifecycle
  /// The largest image, in bytes, that is stored in the job store instead of the image store.
  let largestEmbedded: Int
  let log: Logger

  /// Opens a stage, where bytes are written and hashed.
  func stage(for job: JobID) async throws(JobFailure) -> any StagedImage {
    try await storing(for: job) { () async throws(StoreError) in try await spool.stage() }
  }

  /// Opens the stored image that a job refers to. Throws `.imageGone` if it is lost.
  func open(_ digest: ImageDigest) async throws(FinishError) -> StoredBytes {
    do throws(StoreError) {
      if let stored = try await images.open(digest) { return stored }
    } catch {
      log.error("failed to read a stored image", metadata: ["error": "\(error)"])
      throw .failed(JobFailure(error))
    }
    throw .imageGone
  }

  /// Stores an image beyond its load; if its jobs drop it, until their variants are made. A small image goes into the
  /// transaction that ends the jobs. An image of a background load, which ends no jobs, is published.
  func keep(
    _ ingested: ImageIngest.Ingested, in loaded: inout LoadedImage, for load: Load
  ) async throws(JobFailure) {
    (loaded.wanted, loaded.variants) = (ingested.wanted, ingested.variants)
    if load.needsLeaderVariantsOnly, load.wantedVariants.allSatisfy({ loaded.variants[$0] != nil })
    {
      loaded.isAvailable = false
      // An image that the load has reserved before is expected in a file, so it is not embedded. An image that will be
      // dropped is not embedded either, because a deleted file frees its space immediately.
    } else if !load.isBackground, load.reservation == nil, !load.dropsOriginal,
      let content = ingested.staged.content, content.count <= largestEmbedded
    {
      loaded.embedded = EmbeddedImage(digest: ingested.digest, content: content)
    } else {
      try await publish(
        ingested.staged, ingested.digest, bytes: ingested.bytes, as: load.reserving(),
        for: load.leader.id)
    }
  }

  /// Makes a staged image durable. `holder` reserves it.
  func publish(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, as holder: JobID, for job: JobID
  ) async throws(JobFailure) {
    let isKept = try await storing(for: job) { () async throws(StoreError) in
      try await keeper.save(staged, digest, bytes: bytes, as: holder, limit: keeper.limit)
    }
    guard isKept else { throw .fetch(.cancelled) }
  }

  private func storing<Value>(
    for job: JobID, _ body: () async throws(StoreError) -> Value
  ) async throws(JobFailure) -> Value {
    do throws(StoreError) { return try await body() } catch {
      log.error(
        "failed to store an image", metadata: ["job": "\(job)", "error": "\(error)"])
      throw JobFailure(error)
    }
  }
}

extension JobFailure {
  init(_ error: StoreError) {
    switch error {
    case .full: self = .storageFull
    case .leaseLost, .unavailable, .unreadable: self = .internal
    }
  }
}
