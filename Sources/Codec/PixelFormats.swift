internal import CCodecs
internal import Jobs

/// How the pixels of a format are read.
struct PixelReading {
  typealias Open =
    @convention(c) (
      UnsafePointer<UInt8>?, Int, CheckedPicture, UInt32, UInt32, UnsafeMutablePointer<CodecFault>?
    ) -> UnsafeMutablePointer<Pixels>?

  /// Nil where the decoder gives them: ``ImageReader/rows``.
  let open: Open?
  /// An upper bound of what reading an image holds, in bytes.
  let memory: (ImageDescription) -> Int
}

/// How a format is written.
struct PixelWriting {
  typealias Open = @convention(c) (UInt32, UInt32, Int32, Int32) -> UnsafeMutablePointer<Encoder>?
  typealias MaxBytes = @convention(c) (UInt32, UInt32, Int32, Int32) -> Int

  let open: Open
  let maxBytes: MaxBytes
  /// What writing holds beside the file, in bytes; of a picture of that size.
  let memory: (VariantGeometry.Size) -> Int
  /// In pixels; the library writes none longer.
  let maxSide: Int
  /// Width times height; more would take too long.
  var maxPixels = Int.max
  let keepsAlpha: Bool
  /// Otherwise it takes RGB only.
  let takesGrey: Bool
  let defaultQuality: Int
}

// The one place that says who reads and who writes which format.

extension ImageFormat {
  var reading: PixelReading {
    switch self {
    case .jpeg: PixelReading(open: nil, memory: PixelMemory.jpeg)
    case .png: PixelReading(open: nil, memory: PixelMemory.png)
    case .webp: PixelReading(open: webp_pixels_open, memory: PixelMemory.webp)
    case .gif: PixelReading(open: gif_pixels_open, memory: PixelMemory.gif)
    case .avif: PixelReading(open: avif_pixels_open, memory: PixelMemory.avif)
    }
  }
}

extension OutputFormat {
  var writing: PixelWriting {
    switch self {
    case .jpeg:
      PixelWriting(
        open: jpeg_encoder_open, maxBytes: jpeg_encoder_max_bytes,
        memory: PixelMemory.jpegWriting, maxSide: 65_500, keepsAlpha: false, takesGrey: true,
        defaultQuality: 80)
    case .png:
      PixelWriting(
        open: png_encoder_open, maxBytes: png_encoder_max_bytes, memory: PixelMemory.pngWriting,
        maxSide: Int(Int32.max),
        keepsAlpha: true, takesGrey: true, defaultQuality: 100)
    case .webp:
      PixelWriting(
        open: webp_encoder_open, maxBytes: webp_encoder_max_bytes, memory: PixelMemory.webpWriting,
        maxSide: 16_383, keepsAlpha: true, takesGrey: false, defaultQuality: 80)
    case .avif:
      PixelWriting(
        open: avif_encoder_open, maxBytes: avif_encoder_max_bytes, memory: PixelMemory.avifWriting,
        maxSide: 16_383, maxPixels: 9_000_000, keepsAlpha: true, takesGrey: false,
        defaultQuality: 60)
    }
  }
}

/// Upper bounds of what the libraries hold, from what is known of a picture without its bytes.
private enum PixelMemory {
  /// The profile, what Little CMS makes of it, and what does not depend on the picture; where profiles may
  /// be for printing.
  static let printing = 16 << 20
  /// The same where they are bounded as screens' are; and what a few of PNG's bytes can inflate to at once.
  static let screens = 16 << 20

  /// A file can have many scans without being progressive, and four components that are not
  /// subsampled: each coefficient then has two bytes.
  static func jpeg(_ image: ImageDescription) -> Int {
    let blocks = (image.width / 8 + 5) * (image.height / 8 + 5) * 4
    return printing + blocks * 130 + image.width * 4 * 80
  }

  /// An interlaced picture is read whole; of another one, as much as a few bytes can inflate to.
  static func png(_ image: ImageDescription) -> Int {
    screens + image.width * 4 * (image.isProgressive ? image.height + 4 : 24) + 8 * image.height
  }

  /// Some rows.
  static func jpegWriting(_ size: VariantGeometry.Size) -> Int {
    (1 << 20) + (size.width + 32) * 96 * 3 * 2
  }

  static func webp(_ image: ImageDescription) -> Int {
    printing
      + webp_pixels_memory(
        UInt32(clamping: image.width), UInt32(clamping: image.height), image.hasAlpha)
  }

  static func gif(_ image: ImageDescription) -> Int {
    gif_pixels_memory(UInt32(clamping: image.width), UInt32(clamping: image.height))
  }

  static func avif(_ image: ImageDescription) -> Int {
    printing
      + avif_pixels_memory(
        UInt32(clamping: image.width), UInt32(clamping: image.height), image.hasAlpha)
  }

  static func webpWriting(_ size: VariantGeometry.Size) -> Int {
    webp_encoder_memory(UInt32(size.width), UInt32(size.height), 4)
  }

  static func avifWriting(_ size: VariantGeometry.Size) -> Int {
    avif_encoder_memory(UInt32(size.width), UInt32(size.height), 4)
  }

  static func pngWriting(_ size: VariantGeometry.Size) -> Int { (1 << 20) + size.width * 4 * 8 }
}
