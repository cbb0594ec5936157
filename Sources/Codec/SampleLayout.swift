internal import CCodecs

/// How the samples of a picture come, and what they mean: what whoever decodes it says.
struct SampleLayout {
  /// What the channels are.
  var colours: CodecColours
  /// The last channel is alpha, not premultiplied.
  var hasAlpha = false
  /// Side by side in a row; 1 where each is a plane.
  var channels: Int
  /// The planes' sides.
  var planes: [VariantGeometry.Size]
  /// From its colour profile; copies share it.
  let transform: ColourTransform

  /// - Parameter profile: its bytes live as long as the decoder.
  init(
    colours: CodecColours, hasAlpha: Bool = false, channels: Int, planes: [VariantGeometry.Size],
    profile: UnsafeBufferPointer<UInt8> = UnsafeBufferPointer(start: nil, count: 0)
  ) {
    (self.colours, self.hasAlpha) = (colours, hasAlpha)
    (self.channels, self.planes) = (channels, planes)
    transform = ColourTransform(
      profile, channels: channels * planes.count, isInked: colours.areInks)
  }

  /// Of all planes.
  var allChannels: Int { channels * planes.count }
  /// The largest plane's.
  var fullSize: VariantGeometry.Size? {
    planes.max { $0.width * $0.height < $1.width * $1.height }
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

extension SampleLayout {
  init(_ pixels: CodecPixels, planes: [CodecRows]) {
    self.init(
      colours: pixels.colours, hasAlpha: pixels.has_alpha, channels: Int(pixels.channels),
      planes: planes.map {
        VariantGeometry.Size(width: Int($0.width), height: Int($0.height))
      },
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
