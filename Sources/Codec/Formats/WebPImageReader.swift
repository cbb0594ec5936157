internal import CCodecs
internal import Jobs

/// Decodes WebP. See `webp.c`.
final class WebPImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(maxMemory: Int) {
    guard let reader = webp_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { webp_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    webp_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { webp_reader_picture(reader) }
  var message: String { String(cString: webp_reader_message(reader)) }

  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    webp_reader_allow_frames(reader, limits.frames)
  }
}

extension FormatSignature {
  private static let riff = Array("RIFF".utf8)
  private static let webpWord = Array("WEBP".utf8)

  /// The four bytes between the two words are the file's length.
  static let webp = FormatSignature(
    matches: { $0.starts(with: riff) && $0.dropFirst(8).starts(with: webpWord) },
    isBegun: {
      riff.starts(with: $0.prefix(4)) && $0.count < 12 && webpWord.starts(with: $0.dropFirst(8))
    })
}
