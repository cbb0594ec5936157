internal import CCodecs

/// Owns one C reader: it lives and is freed with this.
protocol ImageReader: AnyObject {
  /// Decodes one slice of the bytes that were not consumed before and those that follow them.
  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep
  /// What is known so far; its pointers live as long as the reader.
  var picture: CodecPicture { get }
  /// The library's word for what went wrong.
  var message: String { get }
  /// Bounds the scans that may begin.
  func allowScans(_ limit: Int)
  /// Has the next steps make a preview of the scans that ``picture`` tells of, with EXIF's orientation.
  func wantPreview(orientation: Int)
  /// The preview, once it is whole; its pointer lives until the reader is used again.
  var preview: CodecPreview { get }
  /// Frees it, or ends it.
  func dropPreview()
}

extension ImageReader {
  func wantPreview(orientation: Int) {}
  var preview: CodecPreview { CodecPreview() }
  func dropPreview() {}
}

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
  func allowScans(_ limit: Int) { jpeg_reader_allow_scans(reader, Int32(clamping: limit)) }
  func wantPreview(orientation: Int) {
    jpeg_reader_want_preview(reader, Int32(clamping: orientation))
  }
  var preview: CodecPreview { jpeg_reader_preview(reader) }
  func dropPreview() { jpeg_reader_drop_preview(reader) }
}

final class PNGImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Nil when there is no memory.
  init?(maxMemory: Int) {
    guard let reader = png_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { png_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    png_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var picture: CodecPicture { png_reader_picture(reader) }
  var message: String { String(cString: png_reader_message(reader)) }
  /// Passes of an interlaced PNG are seven at the most.
  func allowScans(_ limit: Int) {}
  func wantPreview(orientation: Int) {
    png_reader_want_preview(reader, Int32(clamping: orientation))
  }
  var preview: CodecPreview { png_reader_preview(reader) }
  func dropPreview() { png_reader_drop_preview(reader) }
}
