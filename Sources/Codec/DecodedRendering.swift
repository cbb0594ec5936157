internal import CCodecs
internal import Jobs

/// Makes variants by decoding the image again: the bytes go through the very decoder that proved them, so that no
/// picture is shown but the one that it saw, and what comes out is what it would have made on its way.
final class DecodedRendering: Rendering {
  private let decoder: StreamingDecoder
  private let plan: VariantPlan
  private let image: ImageDescription
  private var outcome: Result<[Result<[UInt8], CodecError>], CodecError>?

  init(_ bytes: [UInt8], _ image: ImageDescription, _ variants: [Variant]) {
    self.image = image
    plan = VariantPlan(variants.map { VariantRequest($0) }, orientation: image.orientation)
    // What was let in once is not judged again, but for being another picture.
    let limits = DecodeLimits(
      formats: [image.format], maxPixels: .max, maxDimension: max(image.width, image.height),
      maxScans: 10_000, maxMemory: .max / 2)
    decoder = StreamingDecoder(limits: limits, plan: plan, wantsOnlyRows: true)
    decoder.append(bytes)
    decoder.end()
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
      guard header.width == image.width, header.height == image.height else { throw other }
      return nil
    case .finished(let found):
      guard found.isProgressive == image.isProgressive, found.hasAlpha == image.hasAlpha else {
        throw other
      }
      return plan.results
    case .hasMore, .needsBytes: return nil
    }
  }

  private func decoded() throws(CodecError) -> DecodeStep {
    do throws(CodecError) { return try decoder.step() } catch {
      if case .dimensionTooLarge = error { throw other }
      throw error
    }
  }

  private var other: CodecError {
    .broken(format: image.format, detail: "not what was decoded before")
  }
}
