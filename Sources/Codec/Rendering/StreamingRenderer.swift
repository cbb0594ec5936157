internal import CCodecs
package import Jobs

/// Renders variants row by row: decodes, scales, turns upright, converts to sRGB and encodes, in slices. If the
/// format can be read from top to bottom, the whole image is never in memory.
///
/// - A JPEG is decoded at a reduced size if enough pixels remain for the largest variant: at 1/2 if 1.5 times its
///   size remains, at 1/4 if 1.75 times, at 1/8 if twice. Planes are scaled without color conversion, and encoded
///   directly if the variant is a JPEG.
/// - Scaling uses a Lanczos filter with three lobes, on premultiplied colors.
/// - A color profile is applied; a broken one is ignored. Without a profile, colors are sRGB, and CMYK inks are
///   converted by simple complement.
package struct StreamingRenderer: ImageRenderer {
  private let sources: Set<ImageFormat>

  /// - Parameter sources: the formats to read. Images of other formats are refused by name.
  package init(of sources: Set<ImageFormat> = Set(ImageFormat.allCases)) { self.sources = sources }

  package var formats: Set<OutputFormat> { Set(OutputFormat.allCases) }

  package func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int)
  {
    let size = VariantGeometry(of: variant, from: image).size
    return (size.width, size.height)
  }

  package func shrink(for variant: Variant, from image: ImageDescription) -> Int {
    VariantGeometry(of: variant, from: image).shrink(reading: image.format)
  }

  package func memory(for variants: [Variant], from image: ImageDescription) -> Int {
    let reading = image.format.reading.memory(image) + StreamingRendering.batch * 4 * image.width
    return variants.reduce(reading) { sum, variant in
      AnimatedRendering.canRender(variant, of: image)
        ? sum + AnimatedRendering.memory(for: variant, from: image)
        : sum + VariantPipeline.memory(for: variant, from: image)
    }
  }

  package func render(
    _ bytes: [UInt8], of image: ImageDescription, as variants: [Variant]
  ) -> any Rendering {
    guard sources.contains(image.format) else { return RefusedRendering(of: image.format) }
    let animated = variants.map { AnimatedRendering.canRender($0, of: image) }
    if animated.contains(true) { return MixedRendering(bytes, image, variants, animated) }
    return Self.still(bytes, image, variants)
  }

  /// Renders still variants from the first or only frame.
  static func still(
    _ bytes: [UInt8], _ image: ImageDescription, _ variants: [Variant]
  ) -> any Rendering {
    image.format.reading.open == nil
      ? DecodedRendering(bytes, image, variants) : StreamingRendering(bytes, image, variants)
  }
}

/// The result for an image whose format is not read here: it always throws.
private final class RefusedRendering: Rendering {
  private let format: ImageFormat

  init(of format: ImageFormat) { self.format = format }

  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    throw .unsupportedFormat(name: format.name)
  }
}
