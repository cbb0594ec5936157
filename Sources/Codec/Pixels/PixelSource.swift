internal import CCodecs
internal import Jobs

/// Owns one C reader of pixels and the bytes that it reads.
final class PixelSource {
  private let bytes: [UInt8]
  private let pixels: UnsafeMutablePointer<Pixels>
  private let format: ImageFormat
  private let stride: Int
  private let buffer: RowBuffer
  private let pointers: UnsafeMutablePointer<UnsafePointer<UInt8>?>
  private var done = 0

  /// - Parameters:
  ///   - image: describes the image as it was decoded before. Bytes that hold another image are refused before memory
  ///     for it is allocated.
  ///   - least: the size that the reader must not scale down below.
  init(
    _ bytes: [UInt8], _ image: ImageDescription, least: (width: UInt32, height: UInt32)
  ) throws(CodecError) {
    (self.bytes, format) = (bytes, image.format)
    var fault = CodecFault.none
    // The address stays valid: an array's elements are in one heap object, which `bytes` retains and which is never
    // mutated.
    let start = bytes.withUnsafeBufferPointer { $0.baseAddress }
    guard
      let pixels = format.reading.open?(
        start, bytes.count, CheckedImage(image), least.width, least.height, &fault)
    else { throw Self.error(fault, image) }
    self.pixels = pixels
    let batch = StreamingRendering.batch
    stride = Int(pixels.pointee.width) * Int(pixels.pointee.channels)
    buffer = RowBuffer(count: stride * batch)
    pointers = .allocate(capacity: batch)
    for row in 0..<batch { pointers[row] = UnsafePointer(buffer.start + row * stride) }
  }

  deinit {
    pointers.deallocate()
    pixels.pointee.close(pixels)
  }

  var size: VariantGeometry.Size {
    VariantGeometry.Size(width: Int(pixels.pointee.width), height: Int(pixels.pointee.height))
  }

  var channels: Int { Int(pixels.pointee.channels) }

  /// The layout of the rows. The profile's bytes live as long as this object.
  var layout: SampleLayout {
    SampleLayout(
      colours: channels < 3 ? .grey : .RGB, hasAlpha: channels == 2 || channels == 4,
      channels: channels, planes: [SamplePlane(size: size)],
      profile: UnsafeBufferPointer(start: pixels.pointee.icc, count: pixels.pointee.icc_count))
  }

  /// Whether all rows were read.
  var isRead: Bool { done == size.height }

  /// Reads the next rows.
  /// - Returns: nil while the reader has not reached the first row yet.
  func read() throws(CodecError) -> SampleRows? {
    let batch = StreamingRendering.batch
    let read = pixels.pointee.rows(pixels, buffer.start, stride, Int32(batch))
    if read == PIXELS_NOT_YET { return nil }
    guard read > 0 else { throw corruptError }
    done += Int(read)
    return SampleRows(pointers, count: Int(read))
  }

  private var corruptError: CodecError { Self.corruptError(for: format) }

  private static func corruptError(for format: ImageFormat) -> CodecError {
    .broken(format: format, detail: "not the image decoded before")
  }

  private static func error(_ fault: CodecFault, _ image: ImageDescription) -> CodecError {
    switch fault {
    case .cutShort: return .cutShort
    case .unsupported: return .unsupportedFormat(name: image.format.name)
    case .tooMuchMemory:
      // Less memory is available than was reserved.
      let reckoned = image.format.reading.memory(image)
      return .tooMuchMemory(bytes: reckoned, limit: reckoned)
    case .none, .broken, .tooLarge, .tooManyScans, .tooManyFrames, .frameTooLarge:
      return corruptError(for: image.format)
    }
  }
}

extension CheckedImage {
  /// A number that cannot be a side becomes 0, which matches no image.
  init(_ image: ImageDescription) {
    self.init(
      width: UInt32(exactly: image.width) ?? 0, height: UInt32(exactly: image.height) ?? 0,
      has_alpha: image.hasAlpha, is_progressive: image.isProgressive,
      frames: UInt64(clamping: image.frames),
      extra_memory: UInt64(clamping: image.extraMemory ?? 0))
  }
}
