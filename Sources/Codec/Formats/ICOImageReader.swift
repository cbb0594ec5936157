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
