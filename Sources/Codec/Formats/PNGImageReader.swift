internal import CCodecs
internal import Jobs

/// Decodes PNG. See `png.c`.
final class PNGImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(maxMemory: Int) {
    guard let reader = png_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { png_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    png_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { png_reader_picture(reader) }
  var message: String { String(cString: png_reader_message(reader)) }

  /// An interlaced PNG has at most seven passes, so only frames need a limit.
  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    png_reader_allow_frames(reader, limits.frames)
  }

  func limitToRows() {
    png_reader_disable_previews(reader)
    png_reader_skip_animation(reader)
  }

  func requestPreview(orientation: Int) {
    png_reader_request_preview(reader, Int32(clamping: orientation))
  }

  var preview: CodecPreview { png_reader_preview(reader) }
  func discardPreview() { png_reader_discard_preview(reader) }

  func requestRows() -> Bool {
    png_reader_request_rows(reader)
    return true
  }

  var layout: SampleLayout {
    SampleLayout(png_reader_pixels(reader), planes: [png_reader_rows(reader, 0)])
  }

  var rows: [SampleRows] { [SampleRows(png_reader_rows(reader, 0))].compactMap { $0 } }
}

extension FormatSignature {
  static let png = FormatSignature([[0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]])
}
