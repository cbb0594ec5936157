internal import CCodecs
internal import Jobs

/// Decodes BMP and ICO. See `bmp.c`.
final class BMPImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(isIcon: Bool, maxMemory: Int) {
    guard let reader = bmp_reader_create(isIcon, maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { bmp_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    bmp_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { bmp_reader_picture(reader) }
  var message: String { String(cString: bmp_reader_message(reader)) }

  /// An icon may contain a PNG, and that PNG may be animated.
  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    bmp_reader_allow_frames(reader, limits.frames)
  }
}
