internal import CCodecs
internal import Jobs

/// Decodes AVIF. See `avif.c`.
final class AVIFImageReader: ImageReader {
  private let reader: OpaquePointer

  /// Returns nil if out of memory.
  init?(maxMemory: Int, maxFrames: Int) {
    guard let reader = avif_reader_create(maxMemory, UInt32(clamping: maxFrames)) else {
      return nil
    }
    self.reader = reader
  }

  deinit { avif_reader_destroy(reader) }

  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep {
    avif_reader_step(reader, bytes.baseAddress, bytes.count, ended)
  }

  var properties: CodecImageInfo { avif_reader_picture(reader) }
  var message: String { String(cString: avif_reader_message(reader)) }

  func limit(_ header: ImageHeader, by limits: DecodeLimits) {
    avif_reader_allow_frames(reader, limits.frames)
  }
}

extension FormatSignature {
  /// The word follows its box's length, which has 32 bits and is small.
  static let avif = FormatSignature(
    matches: { ISOMediaBrands($0)?.isAVIF == true },
    isBegun: {
      (5..<12).contains($0.count) && $0.starts(with: [0, 0, 0])
        && Array("ftypavi".utf8).starts(with: $0.dropFirst(4))
    })
}
