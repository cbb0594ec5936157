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

/// Reads the orientation (tag 0x0112) from an EXIF block. The block is a TIFF file, and the tag is in its first
/// directory.
///
/// Reads only that directory and follows no other offset. So a hostile block costs at most one pass over its bytes.
enum EXIFOrientation {
  private static let tag = 0x0112
  private static let entrySize = 12

  /// Returns 1 to 8, or nil if the block has no valid orientation.
  static func read(_ block: UnsafeBufferPointer<UInt8>) -> Int? {
    guard let tiff = TIFF(withoutName(block)), let directory = tiff.long(at: 4),
      let entries = tiff.short(at: directory)
    else { return nil }
    for index in 0..<entries {
      let entry = directory + 2 + index * entrySize
      guard let found = tiff.short(at: entry) else { return nil }
      if found == tag { return tiff.value(ofEntryAt: entry) }
    }
    return nil
  }

  /// Some writers put JPEG's "Exif\0\0" prefix into PNG's chunk, where it does not belong.
  private static func withoutName(_ block: UnsafeBufferPointer<UInt8>) -> Slice<
    UnsafeBufferPointer<UInt8>
  > {
    block.starts(with: "Exif\0\0".utf8) ? block.dropFirst(6) : block[...]
  }

  /// Reads numbers at offsets, in the file's byte order. Returns nil beyond the end.
  private struct TIFF {
    private let bytes: UnsafeBufferPointer<UInt8>
    private let isBigEndian: Bool

    init?(_ slice: Slice<UnsafeBufferPointer<UInt8>>) {
      bytes = UnsafeBufferPointer(rebasing: slice)
      if bytes.starts(with: [0x49, 0x49, 42, 0]) {
        isBigEndian = false
      } else if bytes.starts(with: [0x4D, 0x4D, 0, 42]) {
        isBigEndian = true
      } else {
        return nil
      }
    }

    func short(at offset: Int) -> Int? { number(at: offset, bytes: 2) }

    func long(at offset: Int) -> Int? { number(at: offset, bytes: 4) }

    /// The value of an entry: one SHORT, as EXIF requires, or one LONG, as some writers store it.
    func value(ofEntryAt entry: Int) -> Int? {
      guard let type = short(at: entry + 2), long(at: entry + 4) == 1,
        let value = type == 3 ? short(at: entry + 8) : type == 4 ? long(at: entry + 8) : nil
      else { return nil }
      return 1...8 ~= value ? value : nil
    }

    private func number(at offset: Int, bytes count: Int) -> Int? {
      // Offsets have 32 bits, so the sum does not overflow.
      guard offset + count <= bytes.count else { return nil }
      let digits = bytes[offset..<offset + count]
      return isBigEndian
        ? digits.reduce(0) { $0 << 8 | Int($1) } : digits.reversed().reduce(0) { $0 << 8 | Int($1) }
    }
  }
}
