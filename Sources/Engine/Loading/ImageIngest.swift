internal import Jobs

/// Takes one image in: its bytes go to the stage and the decoder as they come, and nothing is kept but both, and the
/// newest preview.
///
/// Runs on the decode threads: hashing, writing and decoding of one piece follow each other without a hop between.
struct ImageIngest: Sendable {
  let codec: any ImageCodec
  let memory: DecodeMemory

  /// An image that was decoded to its end, staged but not published.
  struct Ingested: Sendable {
    var description: ImageDescription
    var digest: ImageDigest
    var bytes: Int
    var staged: any StagedImage
  }

  /// - Parameters:
  ///   - source: the bytes, or those that follow `kept`.
  ///   - kept: what the stage has already: it is only decoded.
  ///   - load: is told of the header and of the bytes so far; stops it by being cancelled.
  func take(
    _ source: any ImageBytes, after kept: (any ImageBytes)? = nil, to staged: any StagedImage,
    for load: Load, _ crew: Crew
  ) async throws(JobFailure) -> Ingested {
    var decode = Decode(
      decoder: codec.makeDecoder(limits: crew.configuration.limits), memory: memory, load: load,
      crew: crew)
    var count = 0
    while let piece = try await Decode.next(of: kept) {
      count += piece.count
      try await decode.proceed(with: piece)
    }
    while let piece = try await decode.piece(of: source) {
      count += piece.count
      do throws(StoreError) { try staged.write(piece) } catch { throw JobFailure(error) }
      if load.tracker.isWhole(with: count) { decode.endPreviews() }
      try await decode.proceed(with: piece)
      load.tracker.advance(to: count, decodeTime: decode.time)
      load.received(bytes: max(count, source.codedCount))
    }
    // What followed a coding's end came, too.
    load.received(bytes: source.codedCount)
    guard count > 0 else { throw .fetch(.noData) }
    load.tracker.bodyCame()
    let description = try await decode.finish()
    load.tracker.advance(to: count, decodeTime: decode.time)
    return Ingested(description: description, digest: staged.finish(), bytes: count, staged: staged)
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
