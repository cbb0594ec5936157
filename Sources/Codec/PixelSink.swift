internal import CCodecs
internal import Jobs

/// Owns one C encoder.
final class PixelSink {
  private let encoder: UnsafeMutablePointer<Encoder>
  private let stride: Int
  private let limit: Int
  /// The pixels that a sample of the planes but the first stands for, along each side.
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

  /// A JPEG whose planes come apart.
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

  /// Takes the next row of a plane.
  func write(_ row: UnsafePointer<UInt8>, plane: Int) throws(CodecError) {
    guard jpeg_encoder_take(encoder, Int32(plane), row) else { throw failure }
  }

  /// Takes rows that lie one behind the other.
  func write(_ rows: UnsafePointer<UInt8>, count: Int) throws(CodecError) {
    guard encoder.pointee.rows(encoder, rows, stride, Int32(count)) else { throw failure }
  }

  /// The whole file.
  func finish() throws(CodecError) -> [UInt8] {
    guard encoder.pointee.finish(encoder) else { throw failure }
    return Array(UnsafeBufferPointer(start: encoder.pointee.bytes, count: encoder.pointee.count))
  }

  /// Encoders fail for want of memory alone: they are given all there is to a picture.
  private var failure: CodecError { .tooMuchMemory(bytes: limit, limit: limit) }
}
