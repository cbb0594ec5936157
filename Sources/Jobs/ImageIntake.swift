internal import Logging

/// Takes one image in: its bytes go to the stage and the decoder as they come, and nothing is kept but both.
///
/// Runs on the decode threads: hashing, writing and decoding of one piece follow each other without a hop between.
struct ImageIntake: Sendable {
  let codec: any ImageCodec
  let images: any ImageStore
  let memory: DecodeMemory

  /// An image whose every pixel was decoded, staged but not published.
  struct Taken: Sendable {
    var description: ImageDescription
    var digest: ImageDigest
    var bytes: Int
    var staged: any StagedImage
  }

  /// - Parameters:
  ///   - limits: narrower than the codec's own where the job says so.
  ///   - onBytes: called after each piece was decoded, with the bytes so far and the computing time of decoding.
  func take(
    _ source: any ImageBytes, limits: DecodeLimits, onBytes: (Int, Duration) -> Void
  ) async throws(JobFailure) -> Taken {
    let staged = try await Self.storing { () async throws(StoreError) in try await images.stage() }
    var decode = Decode(decoder: codec.makeDecoder(limits: limits), memory: memory)
    var count = 0
    while let piece = try await Self.fetching(source) {
      count += piece.count
      do throws(StoreError) { try staged.write(piece) } catch { throw JobFailure(error) }
      try await decode.proceed(with: piece)
      onBytes(count, decode.time)
    }
    guard count > 0 else { throw .fetch(.noData) }
    let description = try await decode.finish()
    onBytes(count, decode.time)
    return Taken(description: description, digest: staged.finish(), bytes: count, staged: staged)
  }

  private static func fetching(_ source: any ImageBytes) async throws(JobFailure) -> [UInt8]? {
    do throws(FetchError) { return try await source.next() } catch { throw .fetch(error) }
  }

  private static func storing<Value>(
    _ body: () async throws(StoreError) -> Value
  ) async throws(JobFailure) -> Value {
    do throws(StoreError) { return try await body() } catch { throw JobFailure(error) }
  }
}

/// One decode under way, with its share of the memory.
private struct Decode {
  let decoder: any ImageDecoder
  let memory: DecodeMemory
  var share: DecodeMemory.Share?
  var time: Duration = .zero

  init(decoder: any ImageDecoder, memory: DecodeMemory) {
    self.decoder = decoder
    self.memory = memory
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
      case .header(let header): share = await memory.share(header.decodingMemory)
      }
      if Task.isCancelled { throw .fetch(.cancelled) }
    }
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
