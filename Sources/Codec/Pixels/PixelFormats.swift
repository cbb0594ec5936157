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

/// One plane of an image's samples.
struct SamplePlane: Equatable {
  /// In samples.
  var size: VariantGeometry.Size
  /// How many pixels of the whole image one sample covers, along each side; nil if the decoder does not report it.
  var pixels: VariantGeometry.Size?
}

/// The order and meaning of an image's samples, as its decoder reports them.
struct SampleLayout {
  /// The meaning of the channels.
  var colours: CodecColours
  /// Whether the last channel is alpha, not premultiplied.
  var hasAlpha = false
  /// Channels interleaved in a row; 1 if each channel is a plane.
  var channels: Int
  var planes: [SamplePlane]
  /// Made from the color profile. Copies of this value share it.
  let transform: ColourTransform

  /// - Parameter profile: its bytes live as long as the decoder.
  init(
    colours: CodecColours, hasAlpha: Bool = false, channels: Int, planes: [SamplePlane],
    profile: UnsafeBufferPointer<UInt8> = UnsafeBufferPointer(start: nil, count: 0)
  ) {
    (self.colours, self.hasAlpha) = (colours, hasAlpha)
    (self.channels, self.planes) = (channels, planes)
    transform = ColourTransform(
      profile, channels: channels * planes.count, isInked: colours.areInks)
  }

  /// The channels of all planes together.
  var allChannels: Int { channels * planes.count }
  /// The largest plane.
  var fullPlane: SamplePlane? {
    planes.max { $0.size.width * $0.size.height < $1.size.width * $1.size.height }
  }
  var isInked: Bool { colours.areInks }
  var isYCC: Bool { colours == .YCC || colours == .yccInks }

  /// Groups adjacent planes that have equal sizes before and after scaling. Each group is scaled together.
  /// - Parameter chroma: how many pixels one sample of a plane will cover, along each side.
  func groups(_ chroma: (Int) -> Int) -> [Range<Int>] {
    var groups: [Range<Int>] = []
    for (index, plane) in planes.enumerated() {
      if let last = groups.last, planes[last.lowerBound] == plane,
        chroma(last.lowerBound) == chroma(index)
      {
        groups[groups.count - 1] = last.lowerBound..<index + 1
      } else {
        groups.append(index..<index + 1)
      }
    }
    return groups
  }
}

extension CodecColours {
  fileprivate var areInks: Bool { self == .inks || self == .yccInks }
}

extension SamplePlane {
  init(_ rows: CodecRows) {
    size = VariantGeometry.Size(width: Int(rows.width), height: Int(rows.height))
    pixels =
      rows.across == 0
      ? nil : VariantGeometry.Size(width: Int(rows.across), height: Int(rows.down))
  }
}

extension SampleLayout {
  init(_ pixels: CodecPixels, planes: [CodecRows]) {
    self.init(
      colours: pixels.colours, hasAlpha: pixels.has_alpha, channels: Int(pixels.channels),
      planes: planes.map(SamplePlane.init),
      profile: UnsafeBufferPointer(start: pixels.icc, count: pixels.icc_count))
  }
}

/// The next rows of a plane, valid until the decoder is called again.
struct SampleRows {
  typealias Row = UnsafePointer<UInt8>

  private let rows: UnsafePointer<Row?>
  let count: Int

  init(_ rows: UnsafePointer<Row?>, count: Int) { (self.rows, self.count) = (rows, count) }

  init?(_ rows: CodecRows) {
    guard let start = rows.rows else { return nil }
    (self.rows, count) = (start, Int(rows.count))
  }

  subscript(row: Int) -> Row? { rows[row] }
}
