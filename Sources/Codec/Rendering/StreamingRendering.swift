internal import CCodecs
internal import Jobs

/// Reads rows from a complete image and passes them to the variants' pipelines, a batch at a time.
final class StreamingRendering: Rendering {
  /// Rows that are read or written at once.
  static let batch = RowResampler.batch
  /// Less than the 10 ms that a step may take, because the clock is read only between batches.
  static let slice = Duration.milliseconds(6)

  private enum State {
    case waiting([UInt8])
    case rendering(PixelSource)
    case writing
    case finished
    case failed(CodecError)
  }

  private let image: ImageDescription
  private let plan: VariantPlan
  private var state: State

  init(_ bytes: [UInt8], _ image: ImageDescription, _ variants: [Variant]) {
    self.image = image
    plan = VariantPlan(variants, of: image)
    state = .waiting(bytes)
  }

  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    do throws(CodecError) {
      return try advance()
    } catch {
      state = .failed(error)
      throw error
    }
  }

  private func advance() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    switch state {
    case .waiting(let bytes):
      state = .rendering(try PixelSource(bytes, image, least: plan.leastRead))
      return nil
    case .rendering(let source):
      if try run(source) { state = .writing }
      return nil
    case .writing:
      guard plan.write() else { return nil }
      state = .finished
      return plan.results
    case .finished: return plan.results
    case .failed(let error): throw error
    }
  }

  /// - Returns: true once all rows were read.
  private func run(_ source: PixelSource) throws(CodecError) -> Bool {
    let end = ContinuousClock.now + Self.slice
    repeat {
      guard let rows = try source.read() else { continue }
      plan.add([rows], layout: { source.layout })
      if source.isRead || plan.hasFailed { return true }
    } while ContinuousClock.now < end
    return false
  }
}
