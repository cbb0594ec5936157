internal import CCodecs
internal import Jobs

/// Owns one C encoder.
final class PixelSink {
  private let encoder: UnsafeMutablePointer<Encoder>
  private let stride: Int
  private let limit: Int
  /// How many pixels one sample of the chroma planes covers, along each side: 1 or 2.
  let chroma: Int

  init(
    _ writing: PixelWriting, size: VariantGeometry.Size, channels: Int, quality: Int?
  ) throws(CodecError) {
    guard max(size.width, size.height) <= writing.maxSide else {
      throw .dimensionTooLarge(width: size.width, height: size.height, limit: writing.maxSide)
    }
    guard size.width * size.height <= writing.maxPixels else {
      throw .tooManyPixels(width: size.width, height: size.height, limit: writing.maxPixels)
    }
    let (width, height) = (UInt32(size.width), UInt32(size.height))
    let quality = Int32(min(max(1, quality ?? writing.defaultQuality), 100))
    stride = size.width * channels
    chroma = 1
    limit = writing.maxBytes(width, height, Int32(channels), quality)
    guard let encoder = writing.open(width, height, Int32(channels), quality) else {
      throw .tooMuchMemory(bytes: limit, limit: limit)
    }
    self.encoder = encoder
  }

  /// Opens a JPEG encoder that takes each plane separately.
  init(planes: Int, size: VariantGeometry.Size, quality: Int?) throws(CodecError) {
    let writing = OutputFormat.jpeg.writing
    guard max(size.width, size.height) <= writing.maxSide else {
      throw .dimensionTooLarge(width: size.width, height: size.height, limit: writing.maxSide)
    }
    let (width, height) = (UInt32(size.width), UInt32(size.height))
    let quality = Int32(min(max(1, quality ?? writing.defaultQuality), 100))
    stride = 0
    limit = writing.maxBytes(width, height, Int32(planes), quality)
    chroma = planes > 1 ? Int(jpeg_encoder_chroma(quality)) : 1
    guard let encoder = jpeg_planes_encoder_open(width, height, Int32(planes), quality) else {
      throw .tooMuchMemory(bytes: limit, limit: limit)
    }
    self.encoder = encoder
  }

  deinit { encoder.pointee.close(encoder) }

  /// Encodes the next row of a plane.
  func write(_ row: UnsafePointer<UInt8>, plane: Int) throws(CodecError) {
    guard jpeg_encoder_add_row(encoder, Int32(plane), row) else { throw failure }
  }

  /// Encodes the next rows, which lie one after another in memory.
  func write(_ rows: UnsafePointer<UInt8>, count: Int) throws(CodecError) {
    guard encoder.pointee.rows(encoder, rows, stride, Int32(count)) else { throw failure }
  }

  /// Returns the complete file.
  func finish() throws(CodecError) -> [UInt8] {
    guard encoder.pointee.finish(encoder) else { throw failure }
    return Array(UnsafeBufferPointer(start: encoder.pointee.bytes, count: encoder.pointee.count))
  }

  /// Encoders fail only if out of memory: their input was checked before.
  private var failure: CodecError { .tooMuchMemory(bytes: limit, limit: limit) }
}
