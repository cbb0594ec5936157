internal import Codec
package import Jobs
package import Logging
package import Settings

/// Decodes one image in another process. Each step sends a request and, at most about 10 ms later, returns the reply
/// or nothing yet.
final class IsolatedDecoder: ImageDecoder {
  private enum State {
    case decoding
    case finished(ImageDescription)
    case failed(CodecError)
  }

  private let session: DecoderSession
  private let limits: DecodeLimits
  private let wanted: [VariantRequest]
  private var state = State.decoding
  private var pending: ArraySlice<UInt8> = []
  private var hasEnded = false
  /// Whether the first request was sent, and whether the end of the bytes was sent.
  private var (hasBegun, hasSentEnd) = (false, false)
  private var previewRequest = DecoderRequest.PreviewRequest.none
  private var hasMore = false
  private var header: ImageHeader?
  /// The result that arrived in the same reply as the header.
  private var next: Result<DecodeStep, CodecError>?
  private var (preview, wantsPreview) = (Preview?.none, false)
  /// The first decoder's header, if this is the second decoder.
  private var firstHeader: ImageHeader?
  private(set) var hasMoreToShow = false
  private(set) var variants: [[UInt8]?] = []

  init(_ pool: DecoderPool, limits: DecodeLimits, variants: [VariantRequest]) {
    session = DecoderSession(pool)
    (self.limits, wanted) = (limits, variants)
  }

  func append(_ bytes: [UInt8]) {
    guard case .decoding = state else { return }
    if pending.isEmpty { pending = bytes[...] } else { pending += bytes }
  }

  func finishInput() {
    hasEnded = true
    hasMoreToShow = false
  }

  func beginPreview() {
    guard !hasEnded, hasBegun, header != nil else { return }
    (previewRequest, wantsPreview) = (.begin, true)
  }

  func discardPreview() {
    (preview, wantsPreview) = (nil, false)
    previewRequest = hasBegun ? .drop : .none
  }

  func takePreview() -> Preview? {
    defer { preview = nil }
    return preview
  }

  func step() throws(CodecError) -> DecodeStep {
    do throws(CodecError) {
      if let told = next {
        next = nil
        let step = try told.get()
        // Reading the header took almost no time, so the first slice continues.
        if step != .hasMore { return step }
      }
      switch state {
      case .finished(let description): return .finished(description)
      case .failed(let error): throw error
      case .decoding: return try advance()
      }
    } catch {
      pending = []
      if session.shouldRestart(after: error) {
        restart()
        return .again
      }
      state = .failed(error)
      throw error
    }
  }

  func pause() async -> Duration { await session.pause() }

  private func restart() {
    (hasBegun, hasEnded, hasSentEnd, hasMore) = (false, false, false, false)
    (previewRequest, wantsPreview, hasMoreToShow) = (.none, false, false)
    (firstHeader, header) = (header, nil)
  }

  private func advance() throws(CodecError) -> DecodeStep {
    var isIdle = false
    let most = header?.decodingMemory ?? SharedMemory.smallDecode
    let answer = try session.step(most: most, wantsPreview: wantsPreview && !hasEnded) {
      let request = request()
      isIdle = request == nil
      return request
    }
    guard let answer else { return isIdle ? .needsBytes : .hasMore }
    guard let told = answer.reply.header else { return try handle(answer) }
    let header = try checked(told)
    guard firstHeader == nil else { return try handle(answer) }
    next = Result { () throws(CodecError) in try handle(answer) }
    return .header(header)
  }

  private func request() -> (DecoderRequest.Step, ArraySlice<UInt8>)? {
    guard hasEnded || pending.count >= Self.mostHeld || !session.isCrowded else {
      return nil
    }
    guard !pending.isEmpty || (hasEnded && !hasSentEnd) || hasMore || previewRequest == .begin
    else {
      return nil
    }
    let isLast = hasEnded && pending.count <= SharedMemory.halfSize
    let piece = pending.prefix(SharedMemory.halfSize)
    pending = pending.dropFirst(piece.count)
    var step = DecoderRequest.Step(count: piece.count, hasEnded: isLast, preview: previewRequest)
    if !hasBegun { step.task = .decode(limits, wanted) }
    (hasBegun, hasSentEnd, previewRequest) = (true, isLast, .none)
    return (step, piece)
  }

  private static let mostHeld = 64 << 10

  private func handle(_ answer: CompleteReply) throws(CodecError) -> DecodeStep {
    let reply = answer.reply
    // No preview before the header, because memory for the header cannot be reserved while a preview is made.
    hasMoreToShow = reply.hasMoreToShow && header != nil && !hasEnded
    if let made = answer.preview, !hasEnded {
      guard OutputFormat(rawValue: made.format.rawValue) != nil, made.format.begins(made.bytes)
      else {
        throw session.protocolViolation("an invalid preview")
      }
      (preview, wantsPreview) = (made, false)
    }
    hasMore = false
    switch reply.outcome {
    case .needsBytes: return pending.isEmpty ? .needsBytes : .hasMore
    case .hasMore:
      hasMore = true
      return .hasMore
    case .failed(let error):
      session.finish(isImageDiscarded: true)
      throw error
    case .decoded(let description):
      try finish(description, answer)
      return .finished(description)
    case .rendered: throw session.protocolViolation("rendered files of a decode")
    }
  }

  private func finish(_ found: ImageDescription, _ answer: CompleteReply) throws(CodecError) {
    guard let seen = header,
      (found.format, found.width, found.height) == (seen.format, seen.width, seen.height),
      found.frames <= max(1, limits.maxFrames), found.extraMemory ?? 0 <= seen.decodingMemory
    else { throw session.protocolViolation("an invalid description") }
    guard answer.files.count == wanted.count else {
      throw session.protocolViolation("wrong number of files")
    }
    variants = answer.files.map { try? $0?.get() }
    for case (let file?, let request) in zip(variants, wanted) {
      let variant = request.variant(
        of: found.format, isTransparent: false, formats: Set(OutputFormat.allCases))
      guard variant.format.imageFormat.begins(file) else {
        throw session.protocolViolation("a wrong format")
      }
    }
    session.finish(isImageDiscarded: answer.reply.areInMemory)
    state = .finished(found)
    pending = []
  }

  /// Checks that the header is within the limits, and accepts it once. The engine reserves memory for it.
  private func checked(_ told: ImageHeader) throws(CodecError) -> ImageHeader {
    if let firstHeader, header == nil, told != firstHeader {
      // One of the two decoders is compromised, probably the one that had decoded other images. So throw an
      // error that is retried.
      _ = session.protocolViolation("a header that differs from the first decoder's")
      throw .noDecoder
    }
    guard header == nil,
      limits.formats.contains(told.format),
      told.width <= limits.maxDimension, told.height <= limits.maxDimension,
      told.width.multipliedReportingOverflow(by: told.height).partialValue <= limits.maxPixels,
      told.decodingMemory <= limits.maxMemory
    else { throw session.protocolViolation("an invalid header") }
    header = told
    return told
  }
}

/// Decodes and renders images in sandboxed decoder processes. They have no access to files, sockets, other processes
/// or the service's memory, and may use only the time and memory of one image.
///
/// Input: an image's bytes and the requested variants. Output: the same headers, descriptions, previews and files as
/// from `StreamingCodec` and `StreamingRenderer`, which run in the decoder process. One step here is one slice there.
/// So cancellation, priorities and memory limits work as without isolation. One process works on one image at a time.
/// Every reply is checked against the request. If an image makes its decoder crash or violate the protocol, only its
/// own job fails.
///
/// Read the files in this order: `IsolatedCodec`, `IsolatedDecoder` and `IsolatedRendering`, `DecoderSession`,
/// `DecoderPool`, `DecoderProcess`, `DecoderZygote`; then `DecoderServer`, which is the other side; then the messages
/// (`DecoderRequest`, `DecoderReply`).
///
/// A step blocks its thread for at most about 10 ms. It runs on the threads that the engine uses for decoding.
/// `DecoderPool` and `DecoderZygote` may be used from any thread; each has one lock.
package struct IsolatedCodec: Sendable {
  /// The settings of the decoder processes.
  package struct Configuration: Sendable {
    /// The program that calls ``DecoderServer/run()`` if its first argument is ``DecoderServer/argument``.
    package var program = "/proc/self/exe"
    /// How many bytes one decoder may allocate.
    package var maxMemory = 2 << 30
    /// CPU time that one image may take, in whole seconds.
    package var maxTime = Duration.seconds(60)
    /// CPU time that a step may take for any image, even before its size is known. Large images may take more.
    package var longestStep = Duration.milliseconds(100)
    /// How long a decoder may owe a reply without computing or waiting for a core.
    package var replyTimeout = Duration.seconds(5)
    /// A process is replaced after this many images.
    var imagesPerProcess = 100
    /// How many idle processes are kept for the next images.
    package var maxIdle = 16

    /// If this many decoders are in use, further images start only once 64 KiB, or all, of their bytes have arrived.
    /// So slow origins do not occupy a process each.
    var busyThreshold = 128

    /// The key that sets one of them.
    package static let settings: [Setting<Configuration>] = [
      Setting(
        "decode.max_time", \.maxTime, .duration(.seconds(1) ... .hours(1)),
        "Maximum computing time of one image in a decoder process, in whole seconds.")
    ]

    /// The defaults.
    package init() {}
  }

  /// The sandbox layers of the decoders.
  package struct SandboxLayers: Sendable, Equatable {
    /// Whether seccomp limits their system calls.
    package var hasFilter: Bool
    /// The version of Landlock that denies access to files and sockets; nil if it is not available here.
    package var landlock: Int?
  }

  private let pool: DecoderPool
  private let arithmetic = StreamingRenderer()

  /// Starts the process that forks decoders, without waiting until it is ready.
  package init(_ configuration: Configuration, log: Logger) {
    pool = DecoderPool(configuration, log: log)
    try? pool.start()
  }

  /// Starts a real decoder and blocks until it has entered its sandbox.
  /// - Returns: its sandbox layers, or the reason why no decoder is available.
  package func probe() -> Result<SandboxLayers, ProbeError> {
    do throws(DecoderUnavailable) {
      return .success(try pool.layers())
    } catch {
      return .failure(ProbeError(description: error.description))
    }
  }

  /// Why no decoder is available.
  package struct ProbeError: Error, CustomStringConvertible {
    package let description: String
  }
}

extension IsolatedCodec: ImageCodec {
  package func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder {
    IsolatedDecoder(pool, limits: limits, variants: variants)
  }
}

extension IsolatedCodec: ImageRenderer {
  // These functions do not read an image's bytes, so they run in this process.
  package var formats: Set<OutputFormat> { arithmetic.formats }

  package func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int)
  {
    arithmetic.size(of: variant, from: image)
  }

  package func shrink(for variant: Variant, from image: ImageDescription) -> Int {
    arithmetic.shrink(for: variant, from: image)
  }

  package func memory(for variants: [Variant], from image: ImageDescription) -> Int {
    arithmetic.memory(for: variants, from: image)
  }

  package func render(
    _ bytes: [UInt8], of image: ImageDescription, as variants: [Variant]
  ) -> any Rendering {
    IsolatedRendering(
      pool, bytes, image, variants,
      mostBytes: arithmetic.memory(for: variants, from: image))
  }
}
