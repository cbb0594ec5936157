public import Jobs

/// How long a step may compute for, so that one which goes on for ever can be told from one of a large picture.
///
/// A step ends after some 10 ms, but what a library can't divide takes as long as it takes: a frame, a slice, a file that is
/// encoded. What is allowed for that is in ``FormatTraits/stepTime`` and ``PixelWriting/stepTime``; docs/limits.md has what
/// it was measured to take. A small picture is allowed more, as any is before its size is known.
public enum StepTime {
  /// Of a picture that is decoded, and these variants made on the way.
  public static func most(of header: ImageHeader, _ requests: [VariantRequest]) -> Duration {
    let image = ImageDescription(format: header.format, width: header.width, height: header.height)
    let variants = requests.map { request in
      request.variant(
        of: image.format, isTransparent: false, formats: Set(OutputFormat.allCases))
    }
    // Which way up it is may be told after its pixels.
    let ways = [1, 6].map { orientation in
      var image = image
      image.orientation = orientation
      return most(of: image, variants)
    }
    return ways.max() ?? .zero
  }

  /// Of a picture that these variants are rendered of.
  public static func most(of image: ImageDescription, _ variants: [Variant]) -> Duration {
    let read = time(image.width, image.height, image.format.traits.stepTime)
    return variants.reduce(variants.isEmpty ? read : read + profile) { sum, variant in
      let size = VariantGeometry(of: variant, from: image).size
      return sum + time(size.width, size.height, variant.format.writing.stepTime)
    }
  }

  /// The tables of a colour profile, reckoned before the first row of variants, whatever the pixels: ten times what was
  /// measured.
  private static let profile = Duration.seconds(1)

  /// A millisecond a megapixel is a nanosecond a pixel.
  private static func time(_ width: Int, _ height: Int, _ stepTime: Int) -> Duration {
    .nanoseconds(1) * (Double(width) * Double(height) * Double(stepTime))
  }
}
