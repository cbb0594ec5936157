internal import CCodecs
internal import Jobs

/// Converts scaled rows to what the encoder takes: to sRGB, and onto a background if the result has no alpha.
///
/// This happens after scaling, because there are fewer pixels then.
final class RowColours {
  /// The number of channels in the result.
  let channels: Int

  /// Nil if it would change nothing.
  private let transform: ColourTransform?
  private let isInk: Bool
  private let read, converted: Int
  private let flattens, widens: Bool
  private let background: [UInt8]
  private let buffers: [RowBuffer]

  /// - Parameter pixels: the most pixels in one call.
  init(
    _ layout: SampleLayout, _ writing: PixelWriting, background: Variant.Color?, pixels: Int
  ) {
    transform = layout.transform.changes ? layout.transform : nil
    isInk = layout.isInked && transform == nil
    read = layout.allChannels
    converted = layout.isInked ? 3 : read
    flattens = layout.hasAlpha && (background != nil || !writing.keepsAlpha)
    let paint = background ?? Variant.Color(red: 255, green: 255, blue: 255)
    self.background = [paint.red, paint.green, paint.blue]
    let isGrey = converted < 3 && (!flattens || Set(self.background).count == 1)
    widens = !flattens && isGrey && !writing.takesGrey
    let flat = isGrey && writing.takesGrey ? 1 : 3
    channels = flattens ? flat : widens ? converted + 2 : converted
    buffers = (0..<2).map { _ in RowBuffer(count: pixels * 4) }
  }

  /// Whether `run` returns the rows unchanged.
  var isIdle: Bool { transform == nil && !isInk && !flattens && !widens }

  /// - Returns: the result, valid until the next call.
  func run(_ rows: UnsafePointer<UInt8>, pixels: Int) -> UnsafePointer<UInt8> {
    let inSRGB = convert(rows, pixels)
    let out = buffers[1].start
    if flattens {
      colour_flatten(inSRGB, Int32(converted), out, Int32(channels), pixels, background)
    } else if widens {
      colour_widen(inSRGB, Int32(converted), out, pixels)
    } else {
      return inSRGB
    }
    return UnsafePointer(out)
  }

  private func convert(_ rows: UnsafePointer<UInt8>, _ pixels: Int) -> UnsafePointer<UInt8> {
    let out = buffers[0].start
    if let transform {
      transform.run(rows, out, pixels: pixels)
    } else if isInk {
      colour_print(rows, out, pixels)
    } else {
      return rows
    }
    return UnsafePointer(out)
  }
}

/// Converts pixels from an image's color profile to sRGB. Computed once and shared by all variants, because the
/// tables of a profile take 26 to 84 ms.
final class ColourTransform {
  private let profile: UnsafeBufferPointer<UInt8>
  private let channels: Int
  private let isInked: Bool
  private lazy var opened = colour_transform_open(
    profile.baseAddress, profile.count, Int32(channels), isInked)
  private var isComputed = false

  /// - Parameter profile: must stay valid as long as this object.
  init(_ profile: UnsafeBufferPointer<UInt8>, channels: Int, isInked: Bool) {
    (self.profile, self.channels, self.isInked) = (profile, channels, isInked)
  }

  deinit { if isComputed { colour_transform_close(opened) } }

  /// Whether the conversion changes pixels. False if there is no profile, if the profile is unusable, or if it is
  /// sRGB.
  var changes: Bool {
    guard !profile.isEmpty else { return false }
    isComputed = true
    return opened != nil
  }

  /// Converts pixels. Call it only if ``changes`` is true.
  func run(_ rows: UnsafePointer<UInt8>, _ out: UnsafeMutablePointer<UInt8>, pixels: Int) {
    colour_transform_run(opened, rows, out, pixels)
  }
}
