internal import CCodecs
package import Jobs

/// The properties of a format that only this module uses: its signature, reader, memory, time and library.
struct FormatTraits {
  let signature: FormatSignature
  /// Creates the decoder. Returns nil if out of memory.
  let reader: (DecodeLimits) -> (any ImageReader)?
  /// Reads the image's pixels for variants.
  let reading: PixelReading
  /// CPU time that no single step may exceed, in milliseconds per megapixel: at least ten times the slowest
  /// measurement.
  let stepTime: Int
  /// Whether the smallest variant takes more memory than decoding does. See
  /// ``DecodeLimits/checkVariantMemory(of:fileBytes:)``.
  var checksVariantMemory = false
  /// The library that decodes the format; nil if none is needed.
  var codecLibrary: CodecLibrary?
}

extension ImageFormat {
  /// Whether a file begins with this format's signature. Used because browsers trust the signature.
  package func begins(_ file: [UInt8]) -> Bool { traits.signature.matches(file) }

  var reading: PixelReading { traits.reading }

  // The one table that maps formats to their readers.
  var traits: FormatTraits {
    switch self {
    case .jpeg:
      FormatTraits(
        signature: .jpeg, reader: { JPEGImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: nil, memory: ReadingMemory.jpeg), stepTime: 20,
        codecLibrary: CodecLibrary("libjpeg-turbo", codecs_jpeg_version))
    case .png:
      FormatTraits(
        signature: .png, reader: { PNGImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: nil, memory: ReadingMemory.png), stepTime: 20,
        codecLibrary: CodecLibrary("libpng", codecs_png_version))
    case .webp:
      FormatTraits(
        signature: .webp, reader: { WebPImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: webp_pixels_open, memory: ReadingMemory.webp), stepTime: 200,
        codecLibrary: CodecLibrary("libwebp", codecs_webp_version))
    case .gif:
      FormatTraits(
        signature: .gif, reader: { GIFImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: gif_pixels_open, memory: ReadingMemory.gif), stepTime: 20)
    case .avif:
      FormatTraits(
        signature: .avif,
        reader: { AVIFImageReader(maxMemory: $0.maxMemory, maxFrames: $0.maxFrames) },
        reading: PixelReading(open: avif_pixels_open, memory: ReadingMemory.avif), stepTime: 5_000,
        checksVariantMemory: true, codecLibrary: CodecLibrary("libavif", codecs_avif_version))
    case .jxl:
      FormatTraits(
        signature: .jxl, reader: { JXLImageReader(maxMemory: $0.maxMemory) },
        // All layers of a frame are one step, and their number is not known in advance.
        reading: PixelReading(open: jxl_pixels_open, memory: ReadingMemory.jxl), stepTime: 10_000,
        checksVariantMemory: true, codecLibrary: CodecLibrary("libjxl", codecs_jxl_version))
    case .heic:
      FormatTraits(
        signature: .heic, reader: { HEICImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: heic_pixels_open, memory: ReadingMemory.heic), stepTime: 2_000,
        checksVariantMemory: true, codecLibrary: CodecLibrary("libde265", codecs_de265_version))
    case .ico:
      FormatTraits(
        signature: .ico, reader: { ICOImageReader(maxMemory: $0.maxMemory) },
        reading: PixelReading(open: ico_pixels_open, memory: ReadingMemory.ico), stepTime: 20)
    }
  }
}

/// Upper bounds of the memory that the libraries need. Computed from the image's description, without its bytes.
private enum ReadingMemory {
  /// The color profile, what Little CMS computes from it, and memory that does not depend on the image. For formats
  /// that may have profiles for printing.
  static let printing = 16 << 20
  /// The same for formats whose profiles are limited to the size of screen profiles. It includes what a few bytes of
  /// PNG can inflate to at once.
  static let screens = 16 << 20

  /// A file can have many scans without being progressive, and four components without subsampling. Each coefficient
  /// then has two bytes.
  static func jpeg(_ image: ImageDescription) -> Int {
    let blocks = (image.width / 8 + 5) * (image.height / 8 + 5) * 4
    return printing + blocks * 130 + image.width * 4 * 80
  }

  /// An interlaced image is read whole. For others, the rows that a few bytes can inflate to.
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

  static func ico(_ image: ImageDescription) -> Int {
    screens + ico_pixels_memory(UInt32(clamping: image.width), UInt32(clamping: image.height))
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

/// A linked codec library.
package struct CodecLibrary: Sendable {
  package let name: String
  /// A sandboxed decoder must not call it: some libraries are not loaded there.
  private let readVersion: @Sendable () -> UnsafePointer<CChar>?

  init(_ name: String, _ version: @escaping @Sendable () -> UnsafePointer<CChar>?) {
    (self.name, readVersion) = (name, version)
  }

  /// For example `1.6.39`; of libavif also the versions of its AV1 codecs.
  package var version: String { readVersion().map { String(cString: $0) } ?? "" }

  /// Does once what libraries would otherwise do for each image. Call it before threads are started or decoders forked.
  package static func prepare() { heic_build_tables() }

  /// The libraries of all formats, and Little CMS, which applies color profiles.
  package static var all: [CodecLibrary] {
    ImageFormat.allCases.compactMap(\.traits.codecLibrary)
      + [CodecLibrary("liblcms2", codecs_lcms_version)]
  }
}

/// Owns one C reader and frees it.
protocol ImageReader: AnyObject {
  /// Decodes one slice. The bytes are those that the previous call did not consume, followed by new ones.
  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep
  /// The image's properties, as far as they are known. The pointers live as long as the reader.
  var properties: CodecImageInfo { get }
  /// The library's message for the fault.
  var message: String { get }
  /// Limits the scans or frames that the file may make the reader decode. Called once the header is known.
  func limit(_ header: ImageHeader, by limits: DecodeLimits)
  /// Limits the reader to rows: it keeps nothing for previews and skips an animation next to the default image. Call
  /// it before the first step.
  func limitToRows()
  /// Makes the next steps encode a preview of the scans counted so far, with this EXIF orientation.
  func requestPreview(orientation: Int)
  /// The preview, once it is complete. Its pointer is valid until the reader is used again.
  var preview: CodecPreview { get }
  /// The preview's format, if it differs from the image's.
  var previewFormat: ImageFormat? { get }
  /// Frees the preview, or stops encoding it.
  func discardPreview()
  /// Makes the reader return rows of samples. Call it before the first step.
  /// - Returns: false if this reader never returns rows.
  func requestRows() -> Bool
  /// Decodes at shorter sides: divided by 1, 2, 4 or 8. Call it once the header is known.
  func scale(by factor: Int)
  /// The layout of the rows' samples, valid after the first step that returned rows.
  var layout: SampleLayout { get }
  /// The next rows of each plane, valid until the next step.
  var rows: [SampleRows] { get }
}

extension ImageReader {
  func limitToRows() {}
  func requestPreview(orientation: Int) {}
  var preview: CodecPreview { CodecPreview() }
  var previewFormat: ImageFormat? { nil }
  func discardPreview() {}
  func requestRows() -> Bool { false }
  func scale(by factor: Int) {}
  var layout: SampleLayout { SampleLayout(colours: .RGB, channels: 1, planes: []) }
  var rows: [SampleRows] { [] }
}
