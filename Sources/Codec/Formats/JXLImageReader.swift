internal import CCodecs
internal import Jobs

/// Decodes JPEG XL. See `jxl.c`.
final class JXLImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(maxMemory: Int) {
    guard let reader = jxl_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { jxl_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    jxl_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { jxl_reader_picture(reader) }
  var message: String { String(cString: jxl_reader_message(reader)) }

  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    jxl_reader_allow_frames(reader, limits.frames)
  }
}

extension FormatSignature {
  /// A bare codestream, or a container that begins with a signature box.
  static let jxl: FormatSignature = {
    let box = FormatSignature(
      [[0, 0, 0, 12] + Array("JXL ".utf8) + [0x0D, 0x0A, 0x87, 0x0A]], least: 5)
    let naked = FormatSignature([[0xFF, 0x0A]])
    return FormatSignature(
      matches: { naked.matches($0) || box.matches($0) },
      isBegun: { naked.isBegun($0) || box.isBegun($0) })
  }()
}
