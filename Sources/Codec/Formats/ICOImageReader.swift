internal import CCodecs
internal import Jobs

/// Decodes ICO. See `ico.c`.
final class ICOImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(maxMemory: Int) {
    guard let reader = ico_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { ico_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    ico_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { ico_reader_picture(reader) }
  var message: String { String(cString: ico_reader_message(reader)) }

  /// An icon may contain a PNG, and that PNG may be animated.
  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    ico_reader_allow_frames(reader, limits.frames)
  }
}

extension FormatSignature {
  /// The number of images is below 256. Other formats begin with a box of 256 bytes, which has letters in this place.
  static let ico = FormatSignature(matches: isIcon, isBegun: { _ in false })

  @Sendable private static func isIcon(_ start: [UInt8]) -> Bool {
    start.count > 5 && start.starts(with: [0, 0, 1, 0]) && start[5] == 0
  }
}
