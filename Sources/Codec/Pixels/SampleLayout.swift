internal import CCodecs

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
