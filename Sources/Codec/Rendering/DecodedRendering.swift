internal import CCodecs
internal import Jobs

/// Makes variants by decoding the stored image again. It uses the same decoder that validated the image, so the
/// result equals a variant made during the first decode.
final class DecodedRendering: Rendering {
  private let decoder: StreamingDecoder
  private let plan: VariantPlan
  private let image: ImageDescription
  private var outcome: Result<[Result<[UInt8], CodecError>], CodecError>?

  init(_ bytes: [UInt8], _ image: ImageDescription, _ variants: [Variant]) {
    self.image = image
    plan = VariantPlan(variants.map { VariantRequest($0) }, orientation: image.orientation)
    // The limits were checked when the image was accepted. Now only its sides are checked, to detect different bytes.
    let limits = DecodeLimits(
      formats: [image.format], maxPixels: .max, maxDimension: max(image.width, image.height),
      maxScans: 10_000, maxMemory: .max / 2)
    decoder = StreamingDecoder(limits: limits, plan: plan, wantsOnlyRows: true)
    decoder.append(bytes)
    decoder.finishInput()
  }

  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    if let outcome { return try outcome.get() }
    do throws(CodecError) {
      guard let files = try advance() else { return nil }
      outcome = .success(files)
      return files
    } catch {
      outcome = .failure(error)
      throw error
    }
  }

  private func advance() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    switch try decoded() {
    case .header(let header):
      guard header.width == image.width, header.height == image.height else {
        throw otherImageError
      }
      return nil
    case .finished(let found):
      guard found.isProgressive == image.isProgressive, found.hasAlpha == image.hasAlpha else {
        throw otherImageError
      }
      return plan.results
    case .hasMore, .needsBytes, .again: return nil
    }
  }

  private func decoded() throws(CodecError) -> DecodeStep {
    do throws(CodecError) { return try decoder.step() } catch {
      if case .dimensionTooLarge = error { throw otherImageError }
      throw error
    }
  }

  private var otherImageError: CodecError {
    .broken(format: image.format, detail: "not the image decoded before")
  }
}
