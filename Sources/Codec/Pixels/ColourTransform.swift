internal import CCodecs

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
