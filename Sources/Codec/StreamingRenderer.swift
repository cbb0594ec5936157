internal import CCodecs
public import Jobs

/// Renders variants row by row: decoded, scaled, turned upright, brought to sRGB and encoded in slices, without
/// ever holding a picture of the image's size where its format can be read from top to bottom.
///
/// - A JPEG is decoded at a half of its size where one and a half of the largest variant's is left, at a quarter where one and
///   three quarters, at an eighth where twice that is. Its planes are scaled as they are; where it becomes a JPEG they are encoded so.
/// - Scaling is Lanczos with three lobes, colours premultiplied.
/// - A colour profile is followed; one that is broken is passed over. Without one colours are sRGB's, and inks
///   naively complementary.
public struct StreamingRenderer: ImageRenderer {
  private let sources: Set<ImageFormat>

  /// - Parameter sources: images of other formats are refused by name.
  public init(of sources: Set<ImageFormat> = Set(ImageFormat.allCases)) { self.sources = sources }

  public var formats: Set<OutputFormat> { Set(OutputFormat.allCases) }

  public func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int) {
    let size = VariantGeometry(of: variant, from: image).size
    return (size.width, size.height)
  }

  public func shrink(for variant: Variant, from image: ImageDescription) -> Int {
    VariantGeometry(of: variant, from: image).shrink(reading: image.format)
  }

  public func memory(for variants: [Variant], from image: ImageDescription) -> Int {
    let reading = image.format.reading.memory(image) + StreamingRendering.batch * 4 * image.width
    return variants.reduce(reading) { sum, variant in
      AnimatedRendering.makes(variant, of: image)
        ? sum + AnimatedRendering.memory(for: variant, from: image)
        : sum + VariantPipeline.memory(for: variant, from: image)
    }
  }

  public func render(
    _ bytes: [UInt8], of image: ImageDescription, as variants: [Variant]
  ) -> any Rendering {
    guard sources.contains(image.format) else { return RefusedRendering(of: image.format) }
    let animated = variants.map { AnimatedRendering.makes($0, of: image) }
    if animated.contains(true) { return MixedRendering(bytes, image, variants, animated) }
    return Self.still(bytes, image, variants)
  }

  /// Of the first frame, or the only one.
  static func still(
    _ bytes: [UInt8], _ image: ImageDescription, _ variants: [Variant]
  ) -> any Rendering {
    image.format.reading.open == nil
      ? DecodedRendering(bytes, image, variants) : StreamingRendering(bytes, image, variants)
  }

  public func memory(forDrawing variant: Variant) -> Int {
    let (size, writing) = (PlaceholderDrawing.size(of: variant), variant.format.writing)
    let quality = Int32(clamping: variant.quality ?? writing.defaultQuality)
    let file = writing.maxBytes(
      UInt32(clamping: size.width), UInt32(clamping: size.height), 3, quality)
    return writing.memory(size) + 2 * file + StreamingRendering.batch * size.width * 3 * 2
  }

  public func draw(_ placeholder: Placeholder, as variant: Variant) -> any Rendering {
    PlaceholderDrawing(placeholder, variant)
  }
}

/// Of an image that isn't read here.
private final class RefusedRendering: Rendering {
  private let format: ImageFormat

  init(of format: ImageFormat) { self.format = format }

  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    throw .unsupportedFormat(name: format.name)
  }
}
