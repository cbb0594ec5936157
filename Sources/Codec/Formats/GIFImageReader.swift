internal import CCodecs
internal import Jobs

/// Decodes GIF. See `gif.c`.
final class GIFImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(maxMemory: Int) {
    guard let reader = gif_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { gif_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    gif_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { gif_reader_picture(reader) }
  var message: String { String(cString: gif_reader_message(reader)) }

  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    gif_reader_allow_frames(reader, limits.frames)
  }
}

extension FormatSignature {
  static let gif = FormatSignature(["GIF87a", "GIF89a"].map { Array($0.utf8) })
}
