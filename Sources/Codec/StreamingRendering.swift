internal import CCodecs
internal import Jobs

/// Hands rows from the source to the encoder, some at a time.
final class StreamingRendering: Rendering {
  /// Rows that are read, and that are written, at once.
  static let batch = RowResampler.batch
  /// Below the 10 ms that a step may take: the clock is read between batches.
  static let slice = Duration.milliseconds(6)

  private enum State {
    case waiting([UInt8])
    case rendering(RowPipeline)
    case finished([UInt8])
    case failed(CodecError)
  }

  private let image: ImageDescription
  private let variant: Variant
  private var state: State

  init(_ bytes: [UInt8], _ image: ImageDescription, _ variant: Variant) {
    (self.image, self.variant) = (image, variant)
    state = .waiting(bytes)
  }

  func step() throws(CodecError) -> [UInt8]? {
    do throws(CodecError) {
      return try advance()
    } catch {
      state = .failed(error)
      throw error
    }
  }

  private func advance() throws(CodecError) -> [UInt8]? {
    switch state {
    case .waiting(let bytes):
      state = .rendering(try RowPipeline(bytes, image, variant))
      return nil
    case .rendering(let pipeline):
      guard let file = try run(pipeline) else { return nil }
      state = .finished(file)
      return file
    case .finished(let file):
      return file
    case .failed(let error):
      throw error
    }
  }

  private func run(_ pipeline: RowPipeline) throws(CodecError) -> [UInt8]? {
    let end = ContinuousClock.now + Self.slice
    repeat {
      if let file = try pipeline.advance() { return file }
    } while ContinuousClock.now < end
    return nil
  }
}
