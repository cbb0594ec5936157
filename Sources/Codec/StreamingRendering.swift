internal import CCodecs
internal import Jobs

/// Hands rows from a source that has all bytes to a variant's pipeline, some at a time.
final class StreamingRendering: Rendering {
  /// Rows that are read, and that are written, at once.
  static let batch = RowResampler.batch
  /// Below the 10 ms that a step may take: the clock is read between batches.
  static let slice = Duration.milliseconds(6)

  private enum State {
    case waiting([UInt8])
    case rendering(PixelSource, VariantPipeline)
    case writing(VariantPipeline)
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
      let geometry = VariantGeometry(of: variant, from: image)
      let source = try PixelSource(bytes, image, least: geometry.leastRead)
      state = .rendering(source, try VariantPipeline(source.layout, image, variant))
      return nil
    case .rendering(let source, let pipeline):
      if try run(source, pipeline) { state = .writing(pipeline) }
      return nil
    case .writing(let pipeline):
      guard let file = try pipeline.finish() else { return nil }
      state = .finished(file)
      return file
    case .finished(let file):
      return file
    case .failed(let error):
      throw error
    }
  }

  /// - Returns: whether all rows were taken.
  private func run(_ source: PixelSource, _ pipeline: VariantPipeline) throws(CodecError) -> Bool {
    let end = ContinuousClock.now + Self.slice
    repeat {
      guard let rows = try source.read() else { continue }
      try pipeline.take([rows])
      if source.isRead { return true }
    } while ContinuousClock.now < end
    return false
  }
}
