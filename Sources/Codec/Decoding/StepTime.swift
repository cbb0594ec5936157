package import Jobs

/// How long one step may compute. A decoder that runs longer is treated as stuck.
///
/// A step usually ends after about 10 ms. But some library calls cannot be divided: a frame, a slice, the encoding of
/// a file. ``FormatTraits/stepTime`` and ``PixelWriting/stepTime`` define the time for these, and docs/limits.md has
/// the measurements. Every image may take at least 100 ms, also before its size is known (see `IsolatedCodec`).
package enum StepTime {
  /// The limit for decoding an image and making these variants during the decode.
  package static func most(of header: ImageHeader, _ requests: [VariantRequest]) -> Duration {
    let image = ImageDescription(format: header.format, width: header.width, height: header.height)
    let variants = requests.map { request in
      request.variant(
        of: image.format, isTransparent: false, formats: Set(OutputFormat.allCases))
    }
    // The orientation may be known only after the pixels, so both directions are tried.
    let ways = [1, 6].map { orientation in
      var image = image
      image.orientation = orientation
      return most(of: image, variants)
    }
    return ways.max() ?? .zero
  }

  /// The limit for rendering these variants from an image.
  package static func most(of image: ImageDescription, _ variants: [Variant]) -> Duration {
    let read = time(image.width, image.height, image.format.traits.stepTime)
    return variants.reduce(variants.isEmpty ? read : read + profile) { sum, variant in
      let size = VariantGeometry(of: variant, from: image).size
      return sum + time(size.width, size.height, variant.format.writing.stepTime)
    }
  }

  /// Time for the tables of a color profile, which are computed before the first row of variants, whatever the
  /// image's size. Ten times the measured time.
  private static let profile = Duration.seconds(1)

  /// One millisecond per megapixel equals one nanosecond per pixel.
  private static func time(_ width: Int, _ height: Int, _ stepTime: Int) -> Duration {
    .nanoseconds(1) * (Double(width) * Double(height) * Double(stepTime))
  }
}
