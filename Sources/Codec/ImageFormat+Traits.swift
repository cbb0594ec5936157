internal import CCodecs
public import Jobs

/// All that the codec knows of a format: how its files begin, who reads them, what that takes and where it may be done.
struct FormatTraits {
  /// As people write it.
  let name: String
  let signature: FormatSignature
  /// What decodes it; nil when there is no memory.
  let reader: (DecodeLimits) -> (any ImageReader)?
  /// What reads its pixels for variants.
  let reading: PixelReading
  /// CPU time that no step takes, in milliseconds a megapixel: ten times the slowest that was measured, and more.
  let stepTime: Int
  /// Whether its smallest variant takes more than decoding it does; see ``DecodeLimits/checkVariants(of:fileBytes:)``.
  var isJudgedByVariants = false
  /// Whether it is decoded only where the kernel holds the decoder: its library has had bugs that run others' code, or takes
  /// time and memory that no header tells.
  var needsIsolation = false
}

extension ImageFormat {
  /// Formats that are decoded in this very process, too.
  public static let decodedAnywhere = Set(allCases.filter { !$0.traits.needsIsolation })
  /// Formats that are decoded only in processes that can do nothing else.
  public static let needingIsolation = Set(allCases.filter(\.traits.needsIsolation))

  /// As people write it.
  public var name: String { traits.name }

  /// Whether a file begins as this format's do: browsers go by what it says it is.
  public func begins(_ file: [UInt8]) -> Bool { traits.signature.matches(file) }

  var reading: PixelReading { traits.reading }

  // The one place that says who reads which format.
  var traits: FormatTraits {
    switch self {
    case .jpeg:
      FormatTraits(
        name: "JPEG", signature: .jpeg, reader: { JPEGImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: nil, memory: ReadingMemory.jpeg), stepTime: 20)
    case .png:
      FormatTraits(
        name: "PNG", signature: .png, reader: { PNGImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: nil, memory: ReadingMemory.png), stepTime: 20)
    case .webp:
      FormatTraits(
        name: "WebP", signature: .webp, reader: { WebPImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: webp_pixels_open, memory: ReadingMemory.webp), stepTime: 200)
    case .gif:
      FormatTraits(
        name: "GIF", signature: .gif, reader: { GIFImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: gif_pixels_open, memory: ReadingMemory.gif), stepTime: 20)
    case .avif:
      FormatTraits(
        name: "AVIF", signature: .avif,
        reader: { AVIFImageReader(maxMemory: $0.maxMemory, maxFrames: $0.maxFrames) },
        reading: PixelReading(open: avif_pixels_open, memory: ReadingMemory.avif), stepTime: 5_000,
        isJudgedByVariants: true)
    case .jxl:
      FormatTraits(
        name: "JPEG XL", signature: .jxl, reader: { JXLImageReader(maxMemory: $0.maxMemory) },
        // All of a frame's layers are one step, and none is told before.
        reading: PixelReading(open: jxl_pixels_open, memory: ReadingMemory.jxl), stepTime: 10_000,
        isJudgedByVariants: true, needsIsolation: true)
    case .heic:
      FormatTraits(
        name: "HEIC", signature: .heic, reader: { HEICImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: heic_pixels_open, memory: ReadingMemory.heic), stepTime: 2_000,
        isJudgedByVariants: true, needsIsolation: true)
    case .bmp:
      FormatTraits(
        name: "BMP", signature: .bmp,
        reader: { BMPImageReader(isIcon: false, maxMemory: $0.maxMemory) },
        reading: PixelReading(open: bmp_pixels_open, memory: ReadingMemory.bmp), stepTime: 20,
        needsIsolation: true)
    case .ico:
      FormatTraits(
        name: "ICO", signature: .ico,
        reader: { BMPImageReader(isIcon: true, maxMemory: $0.maxMemory) },
        reading: PixelReading(open: ico_pixels_open, memory: ReadingMemory.bmp), stepTime: 20,
        needsIsolation: true)
    }
  }
}

/// Upper bounds of what the libraries hold, from what is known of a picture without its bytes.
private enum ReadingMemory {
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

  static func bmp(_ image: ImageDescription) -> Int {
    screens + bmp_pixels_memory(UInt32(clamping: image.width), UInt32(clamping: image.height))
  }

  static func heic(_ image: ImageDescription) -> Int {
    printing
      + heic_pixels_memory(
        UInt32(clamping: image.width), UInt32(clamping: image.height), image.hasAlpha)
  }

  static func jxl(_ image: ImageDescription) -> Int {
    printing + (image.extraMemory ?? 0)
      + jxl_pixels_memory(
        UInt32(clamping: image.width), UInt32(clamping: image.height), image.hasAlpha,
        image.frames > 1)
  }
}
