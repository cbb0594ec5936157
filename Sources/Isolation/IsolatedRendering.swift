internal import Codec
internal import Jobs

/// Renders variants in another process.
final class IsolatedRendering: Rendering {
  private let session: DecoderSession
  private let image: ImageDescription
  private let variants: [Variant]
  private let mostBytes: Int
  private var bytes: [UInt8]
  /// How many bytes were sent.
  private var count = 0
  private var hasBegun = false
  private var outcome: Result<[Result<[UInt8], CodecError>], CodecError>?

  /// - Parameter mostBytes: the most bytes of all files together.
  init(
    _ pool: DecoderPool, _ bytes: [UInt8], _ image: ImageDescription, _ variants: [Variant],
    mostBytes: Int
  ) {
    session = DecoderSession(pool)
    (self.image, self.variants, self.mostBytes) = (image, variants, mostBytes)
    self.bytes = bytes
  }

  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    if let outcome { return try outcome.get() }
    do throws(CodecError) {
      guard let files = try advance() else { return nil }
      outcome = .success(files)
      bytes = []
      return files
    } catch {
      (hasBegun, count) = (false, 0)
      if session.shouldRestart(after: error) { return nil }
      outcome = .failure(error)
      bytes = []
      throw error
    }
  }

  func pause() async { _ = await session.pause() }

  private func advance() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    guard let answer = try session.step(most: mostBytes, { request() }) else { return nil }
    guard answer.reply.header == nil else {
      throw session.protocolViolation("an unexpected header")
    }
    switch answer.reply.outcome {
    case .needsBytes where count == bytes.count:
      throw session.protocolViolation("too many bytes wanted")
    case .needsBytes, .hasMore: return nil
    case .failed(let error):
      session.finish(isImageDiscarded: true)
      throw error
    case .decoded: throw session.protocolViolation("a decoding result for a rendering")
    case .rendered: return try files(of: answer)
    }
  }

  private func files(
    of answer: CompleteReply
  ) throws(CodecError) -> [Result<[UInt8], CodecError>] {
    let files = answer.files.compactMap { $0 }
    guard files.count == variants.count else {
      throw session.protocolViolation("wrong number of files")
    }
    for case (.success(let file), let variant) in zip(files, variants) {
      guard variant.format.imageFormat.begins(file) else {
        throw session.protocolViolation("a wrong format")
      }
    }
    session.finish(isImageDiscarded: answer.reply.areInMemory)
    return files
  }

  private func request() -> (DecoderRequest.Step, ArraySlice<UInt8>) {
    let piece = bytes[count...].prefix(SharedMemory.halfSize)
    count += piece.count
    var step = DecoderRequest.Step(count: piece.count, hasEnded: count == bytes.count)
    if !hasBegun {
      step.task = .render(image, bytes: bytes.count, variants.map { VariantRequest($0) })
    }
    hasBegun = true
    return (step, piece)
  }
}
