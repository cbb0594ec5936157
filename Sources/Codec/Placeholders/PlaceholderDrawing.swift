internal import Jobs

/// Draws the built-in placeholder image row by row: a plain background, and in its middle a sign that is sharp at
/// every size.
final class PlaceholderDrawing: Rendering {
  private let variant: Variant
  private let size: VariantGeometry.Size
  private let sign: PlaceholderSign
  private let colours: PlaceholderColours
  private var sink: PixelSink?
  private var file: [UInt8]?
  private var done = 0

  init(_ placeholder: Placeholder, _ variant: Variant) {
    self.variant = variant
    size = Self.size(of: variant)
    sign = PlaceholderSign(placeholder, width: size.width, height: size.height)
    colours = PlaceholderColours(placeholder, ground: variant.background)
  }

  static func size(of variant: Variant) -> VariantGeometry.Size {
    VariantGeometry.Size(width: max(1, variant.width ?? 1), height: max(1, variant.height ?? 1))
  }

  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    try draw().map { [.success($0)] }
  }

  private func draw() throws(CodecError) -> [UInt8]? {
    if let file { return file }
    let sink = if let sink { sink } else { try openSink() }
    let end = ContinuousClock.now + StreamingRendering.slice
    repeat {
      guard done < size.height else {
        file = try sink.finish()
        return file
      }
      let count = min(StreamingRendering.batch, size.height - done)
      let rows = (done..<done + count).flatMap(row)
      try sink.write(rows, count: count)
      done += count
    } while ContinuousClock.now < end
    return nil
  }

  private func openSink() throws(CodecError) -> PixelSink {
    let begun = try PixelSink(
      variant.format.writing, size: size, channels: 3, quality: variant.quality)
    sink = begun
    return begun
  }

  /// The samples of one row: red, green and blue.
  private func row(_ y: Int) -> [UInt8] {
    let ground = colours.ground(at: (Double(y) + 0.5) / Double(size.height))
    let plain = ground.samples
    var samples: [UInt8] = []
    samples.reserveCapacity(size.width * 3)
    for _ in 0..<size.width { samples += plain }
    guard sign.rows.contains(y) else { return samples }
    for x in sign.columns {
      let ink = sign.coverage(x: Double(x) + 0.5, y: Double(y) + 0.5)
      guard ink > 0 else { continue }
      samples.replaceSubrange(
        3 * x..<3 * x + 3, with: ground.mixed(with: colours.ink, ink).samples)
    }
    return samples
  }
}

/// The colors of a placeholder.
struct PlaceholderColours {
  /// A color with channels from 0 to 255.
  struct Shade {
    var red, green, blue: Double

    func mixed(with other: Shade, _ share: Double) -> Shade {
      Shade(
        red: red + (other.red - red) * share, green: green + (other.green - green) * share,
        blue: blue + (other.blue - blue) * share)
    }

    /// The color as one pixel's samples: red, green, blue.
    var samples: [UInt8] { [red, green, blue].map { UInt8($0.rounded()) } }
  }

  let ink: Shade
  private let top, bottom: Shade
  private static let black = Shade(red: 0, green: 0, blue: 0)
  private static let white = Shade(red: 255, green: 255, blue: 255)

  /// - Parameter ground: the background; nil means a light gray.
  init(_ placeholder: Placeholder, ground: Variant.Color?) {
    guard let ground else {
      top = Shade(red: 245, green: 246, blue: 248)
      bottom = Shade(red: 231, green: 233, blue: 238)
      ink =
        placeholder == .loading
        ? Shade(red: 168, green: 175, blue: 188) : Shade(red: 190, green: 164, blue: 164)
      return
    }
    let shade = Shade(
      red: Double(ground.red), green: Double(ground.green), blue: Double(ground.blue))
    // Rec. 601 luma, which is precise enough to separate light from dark.
    let isLight = 0.299 * shade.red + 0.587 * shade.green + 0.114 * shade.blue > 127
    (top, bottom) = (shade, shade)
    ink = shade.mixed(with: isLight ? Self.black : Self.white, 0.4)
  }

  /// - Parameter height: 0 at the top, 1 at the bottom.
  func ground(at height: Double) -> Shade { top.mixed(with: bottom, height) }
}
