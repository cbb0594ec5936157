internal import CCodecs
internal import Jobs

/// How the pixels of a format are read for variants.
struct PixelReading {
  typealias Open =
    @convention(c) (
      UnsafePointer<UInt8>?, Int, CheckedImage, UInt32, UInt32, UnsafeMutablePointer<CodecFault>?
    ) -> UnsafeMutablePointer<Pixels>?

  /// Opens the reader. Nil if the decoder itself returns rows (``ImageReader/rows``).
  let open: Open?
  /// An upper bound of the memory that reading an image needs, in bytes.
  let memory: (ImageDescription) -> Int
}

/// How a variant's format is encoded.
struct PixelWriting {
  typealias Open = @convention(c) (UInt32, UInt32, Int32, Int32) -> UnsafeMutablePointer<Encoder>?
  typealias MaxBytes = @convention(c) (UInt32, UInt32, Int32, Int32) -> Int

  let open: Open
  let maxBytes: MaxBytes
  /// Memory that encoding an image of this size needs in addition to the file, in bytes.
  let memory: (VariantGeometry.Size) -> Int
  /// The longest side that the library encodes, in pixels.
  let maxSide: Int
  /// The largest width times height. More would take too long.
  var maxPixels = Int.max
  let keepsAlpha: Bool
  /// Whether the encoder accepts gray rows. If not, it accepts only RGB.
  let takesGrey: Bool
  let defaultQuality: Int
  /// Like ``FormatTraits/stepTime``, for the encoded image.
  let stepTime: Int
}

// The one table that maps formats to their encoders. `ImageFormat.traits` is the table of readers.

extension OutputFormat {
  var writing: PixelWriting {
    switch self {
    case .jpeg:
      PixelWriting(
        open: jpeg_encoder_open, maxBytes: jpeg_encoder_max_bytes,
        memory: WritingMemory.jpegWriting, maxSide: 65_500, keepsAlpha: false, takesGrey: true,
        defaultQuality: 80, stepTime: 20)
    case .png:
      PixelWriting(
        open: png_encoder_open, maxBytes: png_encoder_max_bytes, memory: WritingMemory.pngWriting,
        maxSide: Int(Int32.max),
        keepsAlpha: true, takesGrey: true, defaultQuality: 100, stepTime: 20)
    case .webp:
      PixelWriting(
        open: webp_encoder_open, maxBytes: webp_encoder_max_bytes,
        memory: WritingMemory.webpWriting,
        maxSide: 16_383, keepsAlpha: true, takesGrey: false, defaultQuality: 80, stepTime: 2_000)
    case .avif:
      PixelWriting(
        open: avif_encoder_open, maxBytes: avif_encoder_max_bytes,
        memory: WritingMemory.avifWriting,
        maxSide: 16_383, maxPixels: 9_000_000, keepsAlpha: true, takesGrey: false,
        defaultQuality: 60, stepTime: 5_000)
    }
  }
}

extension PixelWriting {
  /// Returns the rows unencoded. Used for the frames of an animation, which are encoded later.
  static var raw: PixelWriting {
    PixelWriting(
      open: raw_encoder_open, maxBytes: raw_encoder_max_bytes, memory: { _ in 0 }, maxSide: 16_383,
      keepsAlpha: true, takesGrey: false, defaultQuality: 100, stepTime: 20)
  }
}

/// Upper bounds of the memory that the libraries need in addition to the file.
private enum WritingMemory {
  /// Some rows of samples and coefficients.
  static func jpegWriting(_ size: VariantGeometry.Size) -> Int {
    (1 << 20) + (size.width + 32) * 96 * 3 * 2
  }

  static func webpWriting(_ size: VariantGeometry.Size) -> Int {
    webp_encoder_memory(UInt32(size.width), UInt32(size.height), 4)
  }

  static func avifWriting(_ size: VariantGeometry.Size) -> Int {
    avif_encoder_memory(UInt32(size.width), UInt32(size.height), 4)
  }

  static func pngWriting(_ size: VariantGeometry.Size) -> Int { (1 << 20) + size.width * 4 * 8 }
}
