internal import CCodecs
internal import Jobs

/// See `tiff.c`.
final class TIFFImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Nil when there is no memory.
  init?(maxMemory: Int) {
    guard let reader = tiff_reader_create(maxMemory) else { return nil }
    self.reader = reader
  }

  deinit { tiff_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    tiff_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var picture: CodecPicture { tiff_reader_picture(reader) }
  var message: String { String(cString: tiff_reader_message(reader)) }
  /// There is one picture.
  func bound(_ header: ImageHeader, by limits: DecodeLimits) {}
}
