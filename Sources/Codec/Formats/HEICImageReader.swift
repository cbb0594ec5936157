internal import CCodecs
internal import Jobs

/// Decodes HEIC. See `heic.c`.
final class HEICImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(maxMemory: Int) {
    guard let reader = heic_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { heic_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    heic_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { heic_reader_picture(reader) }
  var message: String { String(cString: heic_reader_message(reader)) }

  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    heic_reader_allow_frames(reader, limits.frames)
  }

  /// The orientation is ignored: the thumbnail in the file has its own.
  func requestPreview(orientation: Int) { heic_reader_request_preview(reader) }
  var preview: CodecPreview { heic_reader_preview(reader) }
  var previewFormat: ImageFormat? { .jpeg }
  func discardPreview() { heic_reader_discard_preview(reader) }
}

extension FormatSignature {
  /// Like AVIF. A file that could be both is AVIF.
  static let heic = FormatSignature(
    matches: { ISOMediaBrands($0)?.isHEIC == true },
    isBegun: {
      (5..<12).contains($0.count) && $0.starts(with: [0, 0, 0])
        && Array("ftyphe".utf8).starts(with: $0.dropFirst(4))
    })
}
