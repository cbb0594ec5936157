internal import CCodecs

/// The way from a picture's colour profile to sRGB, reckoned once for all its variants: tables of a profile take 26 to 84 ms.
final class ColourTransform {
  private let profile: UnsafeBufferPointer<UInt8>
  private let channels: Int
  private let isInked: Bool
  private lazy var opened = colour_transform_open(
    profile.baseAddress, profile.count, Int32(channels), isInked)
  private var isReckoned = false

  /// - Parameter profile: lives as long as this.
  init(_ profile: UnsafeBufferPointer<UInt8>, channels: Int, isInked: Bool) {
    (self.profile, self.channels, self.isInked) = (profile, channels, isInked)
  }

  deinit { if isReckoned { colour_transform_close(opened) } }

  /// Whether pixels change by it: not where there is no profile, none that can be used, or sRGB.
  var changes: Bool {
    guard !profile.isEmpty else { return false }
    isReckoned = true
    return opened != nil
  }

  /// Where ``changes``.
  func run(_ rows: UnsafePointer<UInt8>, _ out: UnsafeMutablePointer<UInt8>, pixels: Int) {
    colour_transform_run(opened, rows, out, pixels)
  }
}
