internal import CCodecs
internal import Jobs

/// See `jpeg.c`.
final class JPEGImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Nil when there is no memory.
  init?(maxMemory: Int) {
    guard let reader = jpeg_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { jpeg_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    jpeg_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var picture: CodecPicture { jpeg_reader_picture(reader) }
  var message: String { String(cString: jpeg_reader_message(reader)) }

  func bound(_ header: ImageHeader, by limits: DecodeLimits) {
    jpeg_reader_allow_scans(reader, Int32(clamping: limits.scans(for: header)))
  }

  func wantPreview(orientation: Int) {
    jpeg_reader_want_preview(reader, Int32(clamping: orientation))
  }

  var preview: CodecPreview { jpeg_reader_preview(reader) }
  func dropPreview() { jpeg_reader_drop_preview(reader) }
}
