internal import CCodecs
internal import Jobs

/// How the pixels of a format are read.
struct PixelReading {
  typealias Open =
    @convention(c) (
      UnsafePointer<UInt8>?, Int, UInt32, UInt32, UnsafeMutablePointer<CodecFault>?
    ) -> UnsafeMutablePointer<Pixels>?

  let open: Open
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
  let keepsAlpha: Bool
  /// Otherwise it takes RGB only.
  let takesGrey: Bool
  let defaultQuality: Int
}

// The one place that says who reads and who writes which format.

extension ImageFormat {
  var reading: PixelReading {
    switch self {
    case .jpeg: PixelReading(open: jpeg_pixels_open, memory: PixelMemory.jpeg)
    case .png: PixelReading(open: png_pixels_open, memory: PixelMemory.png)
    }
  }
}

extension OutputFormat {
  /// Nil where it can't be written.
  var writing: PixelWriting? {
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
    case .webp, .avif:
      nil
    }
  }
}

/// Upper bounds of what the libraries hold, from what is known of a picture without its bytes.
private enum PixelMemory {
  /// The profile, what Little CMS makes of it, and what does not depend on the picture; where profiles may
  /// be for printing.
  static let printing = 16 << 20
  /// The same where they are bounded as screens' are; and what a few of PNG's bytes can inflate to at once.
  static let screens = 10 << 20

  /// A file can have many scans without being progressive, and four components that are not
  /// subsampled: each coefficient then has two bytes.
  static func jpeg(_ image: ImageDescription) -> Int {
    let blocks = (image.width / 8 + 5) * (image.height / 8 + 5) * 4
    return printing + blocks * 130 + image.width * 4 * 80
  }

  /// An interlaced picture is read whole.
  static func png(_ image: ImageDescription) -> Int {
    screens + image.width * 4 * (image.isProgressive ? image.height + 4 : 8)
  }

  /// All coefficients of small pictures, some rows of large ones.
  static func jpegWriting(_ size: VariantGeometry.Size) -> Int {
    let padded = (size.width + 32) * min(size.height + 32, (1 << 20) / size.width + 96)
    return (1 << 20) + padded * 3 * 2
  }

  static func pngWriting(_ size: VariantGeometry.Size) -> Int { (1 << 20) + size.width * 4 * 8 }
}
