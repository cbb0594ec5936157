internal import CCodecs

/// One plane of an image's samples.
struct SamplePlane: Equatable {
  /// In samples.
  var size: VariantGeometry.Size
  /// Pixels of the whole image that a sample stands for, along each side, where the decoder says so.
  var pixels: VariantGeometry.Size?
}

/// How the samples of a picture come, and what they mean: what whoever decodes it says.
struct SampleLayout {
  /// What the channels are.
  var colours: CodecColours
  /// The last channel is alpha, not premultiplied.
  var hasAlpha = false
  /// Side by side in a row; 1 where each is a plane.
  var channels: Int
  var planes: [SamplePlane]
  /// From its colour profile; copies share it.
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

  /// Of all planes.
  var allChannels: Int { channels * planes.count }
  /// The largest plane.
  var fullPlane: SamplePlane? {
    planes.max { $0.size.width * $0.size.height < $1.size.width * $1.size.height }
  }
  var isInked: Bool { colours.areInks }
  var isYCC: Bool { colours == .YCC || colours == .yccInks }

  /// Planes of equal sides that follow one another and become as large as one another: they are scaled together.
  /// - Parameter chroma: the pixels that a sample of a plane will stand for, along each side.
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

/// Next rows of a plane, as long as whoever decoded them isn't called again.
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
