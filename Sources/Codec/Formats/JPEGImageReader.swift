internal import CCodecs
internal import Jobs

/// Decodes JPEG. See `jpeg.c`.
final class JPEGImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(maxMemory: Int) {
    guard let reader = jpeg_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { jpeg_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    jpeg_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { jpeg_reader_picture(reader) }
  var message: String { String(cString: jpeg_reader_message(reader)) }

  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    jpeg_reader_allow_scans(reader, Int32(clamping: limits.scans(for: header)))
  }

  func requestPreview(orientation: Int) {
    jpeg_reader_request_preview(reader, Int32(clamping: orientation))
  }

  var preview: CodecPreview { jpeg_reader_preview(reader) }
  func discardPreview() { jpeg_reader_discard_preview(reader) }

  func requestRows() -> Bool {
    jpeg_reader_request_rows(reader)
    return true
  }

  func scale(by factor: Int) { jpeg_reader_scale(reader, Int32(clamping: 8 / factor)) }

  var layout: SampleLayout {
    let pixels = jpeg_reader_pixels(reader)
    return SampleLayout(pixels, planes: (0..<pixels.planes).map { jpeg_reader_rows(reader, $0) })
  }

  var rows: [SampleRows] {
    (0..<jpeg_reader_pixels(reader).planes).compactMap {
      SampleRows(jpeg_reader_rows(reader, $0))
    }
  }
}

extension FormatSignature {
  private static let jpegStart: [UInt8] = [0xFF, 0xD8, 0xFF]

  /// The fourth byte is the first marker. 0xF7 is JPEG-LS.
  static let jpeg = FormatSignature(
    matches: { $0.count > 3 && $0.starts(with: jpegStart) && $0[3] != 0xF7 },
    isBegun: { jpegStart.starts(with: $0) })
}
