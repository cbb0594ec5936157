internal import Logging

/// Takes one image in: its bytes go to the stage and the decoder as they come, and nothing is kept but both.
///
/// Runs on the decode threads: hashing, writing and decoding of one piece follow each other without a hop between.
struct ImageIntake: Sendable {
  let codec: any ImageCodec
  let memory: DecodeMemory

  /// An image whose every pixel was decoded, staged but not published.
  struct Taken: Sendable {
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
  ) async throws(JobFailure) -> Taken {
    var decode = Decode(
      decoder: codec.makeDecoder(limits: crew.configuration.limits), memory: memory, load: load,
      crew: crew)
    var count = 0
    while let piece = try await Self.piece(of: kept) {
      count += piece.count
      try await decode.proceed(with: piece)
    }
    while let piece = try await Self.piece(of: source) {
      count += piece.count
      do throws(StoreError) { try staged.write(piece) } catch { throw JobFailure(error) }
      try await decode.proceed(with: piece)
      load.reporter.advance(to: count, decodeTime: decode.time)
      load.came(bytes: count)
    }
    guard count > 0 else { throw .fetch(.noData) }
    load.reporter.bodyCame()
    let description = try await decode.finish()
    load.reporter.advance(to: count, decodeTime: decode.time)
    return Taken(description: description, digest: staged.finish(), bytes: count, staged: staged)
  }

  private static func piece(of source: (any ImageBytes)?) async throws(JobFailure) -> [UInt8]? {
    do throws(FetchError) { return try await source?.next() } catch { throw .fetch(error) }
  }
}

/// One decode under way, with its share of the memory.
private struct Decode {
  let decoder: any ImageDecoder
  let memory: DecodeMemory
  let load: Load
  let crew: Crew
  var share: DecodeMemory.Share?
  var time: Duration = .zero

  init(decoder: any ImageDecoder, memory: DecodeMemory, load: Load, crew: Crew) {
    self.decoder = decoder
    self.memory = memory
    self.load = load
    self.crew = crew
  }

  mutating func proceed(with piece: [UInt8]) async throws(JobFailure) {
    decoder.append(piece)
    _ = try await steps()
  }

  mutating func finish() async throws(JobFailure) -> ImageDescription {
    decoder.end()
    // A decoder that still wants bytes after the end breaks its contract; the image is then cut.
    guard let description = try await steps() else { throw .codec(.cutShort) }
    return description
  }

  /// Lets other images have a turn between the slices, each of some 10 ms.
  private mutating func steps() async throws(JobFailure) -> ImageDescription? {
    while true {
      switch try slice() {
      case .needsBytes: return nil
      case .finished(let description): return description
      case .hasMore: await Task.yield()
      case .header(let header): await take(header)
      }
      if Task.isCancelled { throw .fetch(.cancelled) }
    }
  }

  private mutating func take(_ header: ImageHeader) async {
    load.came(header)
    await crew.tellDepartures(from: load)
    // The origin isn't to blame for this wait.
    load.pause()
    share = await memory.share(header.decodingMemory)
    load.resume()
  }

  private mutating func slice() throws(JobFailure) -> DecodeStep {
    let start = ContinuousClock.now
    defer { time += ContinuousClock.now - start }
    do throws(CodecError) { return try decoder.step() } catch { throw .codec(error) }
  }
}

extension JobFailure {
  init(_ error: StoreError) {
    switch error {
    case .full: self = .storageFull
    case .unavailable: self = .internal
    }
  }
}
