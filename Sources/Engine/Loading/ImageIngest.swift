internal import Jobs
internal import Logging

/// Takes an image in: its bytes go to the stage and the decoder as they come, and nothing is held but both, and the
/// newest preview.
///
/// In come pieces of bytes, out goes an image that was decoded to its end, and which outlives its load. Runs on the
/// decode threads: hashing, writing and decoding of one piece follow each other without a hop between.
struct ImageIngest: Sendable {
  let codec: any ImageCodec
  let limits: DecodeLimits
  let memory: DecodeMemory
  let staging: ImageStaging
  let completer: JobCompleter
  let lastDecode: LastDecode

  /// An image that was decoded to its end, staged but not published.
  struct Ingested: Sendable {
    var description: ImageDescription
    var digest: ImageDigest
    var bytes: Int
    var staged: any StagedImage
    /// What the decode was to make on its way.
    var wanted: [VariantRequest]
    /// What it made, by what it is.
    var variants: [VariantRequest: [UInt8]]
  }

  /// So many bytes will come: jobs whose limit is lower end.
  func announce(bytes count: Int, of load: Load) async {
    load.tracker.expect(total: count)
    load.received(bytes: count)
    await completer.completeEarlyEnds(of: load)
  }

  /// - Parameters:
  ///   - source: the bytes, or those that follow `kept`.
  ///   - kept: what the stage has already: it is only decoded.
  ///   - load: gets the header and the count of bytes so far; stops the ingest by being cancelled.
  func ingest(
    _ source: any ImageBytes, after kept: (any ImageBytes)? = nil, to staged: any StagedImage,
    for load: Load
  ) async throws(JobFailure) -> Ingested {
    do throws(JobFailure) {
      return try await decode(source, after: kept, to: staged, for: load)
    } catch {
      if case .codec(.crashed(let how)) = error { tellCrash(how, of: staged) }
      throw error
    }
  }

  /// Whoever looks into it finds the bytes by their digest: as far as they had come.
  private func tellCrash(_ how: String, of staged: any StagedImage) {
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
      if load.tracker.isWhole(with: count) {
        decode.take(last: piece)
      } else {
        try await decode.proceed(with: piece)
      }
      load.tracker.advance(to: count, decodeTime: decode.time)
      load.received(bytes: max(count, source.codedCount))
    }
    // Bytes after the end of a content coding count too.
    load.received(bytes: source.codedCount)
    guard count > 0 else { throw .fetch(.noData) }
    load.tracker.bodyCame()
    load.stages?.end(.fetch)
    let description = try await decode.finish(from: staged)
    load.stages?.end(.decode)
    lastDecode.note()
    load.tracker.advance(to: count, decodeTime: decode.time)
    let made = zip(wanted, decode.variants).compactMap { request, file in
      file.map { (request, $0) }
    }
    return Ingested(
      description: description, digest: staged.finish(), bytes: count, staged: staged,
      wanted: wanted, variants: Dictionary(made) { first, _ in first })
  }
}

/// Where an image's bytes lie while it is loaded, and how they come to outlive that.
struct ImageStaging: Sendable {
  let spool: any ImageSpool
  let images: any ImageStore
  let keeper: ImageKeeper
  /// Images of up to so many bytes the job store keeps itself.
  let largestEmbedded: Int
  let log: Logger

  /// Where the bytes are written and hashed.
  func stage(for job: JobID) async throws(JobFailure) -> any StagedImage {
    try await storing(for: job) { () async throws(StoreError) in try await spool.stage() }
  }

  /// An image's bytes, of a job that refers to it.
  func open(_ digest: ImageDigest) async throws(FinishError) -> StoredBytes {
    do throws(StoreError) {
      if let stored = try await images.open(digest) { return stored }
    } catch {
      log.error("an image can't be read", metadata: ["error": "\(error)"])
      throw .failed(JobFailure(error))
    }
    throw .imageGone
  }

  /// Sees to it that the image outlives its load, or, where its jobs drop it, that it is there until their variants are.
  /// One that no job waits for is published: no transaction that ends jobs would take it along.
  func keep(
    _ ingested: ImageIngest.Ingested, in loaded: inout LoadedImage, for load: Load
  ) async throws(JobFailure) {
    (loaded.wanted, loaded.variants) = (ingested.wanted, ingested.variants)
    if load.needsLeaderVariantsOnly, load.wantedVariants.allSatisfy({ loaded.variants[$0] != nil })
    {
      loaded.isAtHand = false
      // What the load has reserved before was a stored response's image, and gone. The store knows of it by that, and
      // would take its bytes to be in a file: so that is where they go. So do bytes that are to be dropped: from a file
      // they are gone at once.
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

  /// Makes a staged image durable, reserved by `holder`.
  func publish(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, as holder: JobID, for job: JobID
  ) async throws(JobFailure) {
    let isKept = try await storing(for: job) { () async throws(StoreError) in
      try await keeper.keep(staged, digest, bytes: bytes, as: holder, limit: keeper.limit)
    }
    guard isKept else { throw .fetch(.cancelled) }
  }

  private func storing<Value>(
    for job: JobID, _ body: () async throws(StoreError) -> Value
  ) async throws(JobFailure) -> Value {
    do throws(StoreError) { return try await body() } catch {
      log.error(
        "an image could not be stored", metadata: ["job": "\(job)", "error": "\(error)"])
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
