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

/// The consumer of a variant's scaled rows.
protocol RowOutput: AnyObject {
  /// How many pixels one sample of a plane covers, along each side.
  func chroma(of plane: Int) -> Int
  /// Whether it accepts the row of one plane before the others are ready.
  var acceptsPlanesSeparately: Bool { get }
  /// Consumes the next row of some planes, which is ready.
  func encode(_ group: ScaledPlanes) throws(CodecError)
  /// Encodes for some milliseconds. Call it after the last row, until it returns the file.
  /// - Returns: the complete file, or nil if work is left.
  func finish() throws(CodecError) -> [UInt8]?
}

/// Uninitialized memory for samples.
final class RowBuffer {
  let start: UnsafeMutablePointer<UInt8>

  init(count: Int) { start = .allocate(capacity: max(1, count)) }

  deinit { start.deallocate() }
}

/// Rows of a JPEG that becomes a JPEG in the same colors. Its planes are scaled and encoded without conversion to
/// RGB.
final class PlaneRows: RowOutput {
  private let sink: PixelSink
  private let subsampling: Int

  /// Returns nil if RGB pixels are needed: to turn or enlarge the image, to apply its profile, or for another format.
  init?(
    _ layout: SampleLayout, _ geometry: VariantGeometry, _ image: ImageDescription,
    _ variant: Variant
  ) throws(CodecError) {
    let isSimple =
      layout.channels == 1 && (layout.colours == .YCC || layout.colours == .grey)
      && layout.planes.count != 2
    guard isSimple, variant.format == .jpeg, image.orientation == 1 else { return nil }
    let first = geometry.task(of: layout.planes[0], channels: 1)
    guard first.scaled.width <= Int(first.box.right - first.box.left),
      first.scaled.height <= Int(first.box.bottom - first.box.top),
      RowColours(layout, variant.format.writing, background: nil, pixels: 1).isIdle
    else { return nil }
    sink = try PixelSink(planes: layout.planes.count, size: geometry.size, quality: variant.quality)
    subsampling = sink.chroma
  }

  func chroma(of plane: Int) -> Int { plane == 0 ? 1 : subsampling }
  var acceptsPlanesSeparately: Bool { true }

  func encode(_ group: ScaledPlanes) throws(CodecError) {
    group.pull()
    for (index, plane) in group.range.enumerated() {
      guard let row = group.out[index] else { continue }
      try sink.write(row, plane: plane)
    }
  }

  func finish() throws(CodecError) -> [UInt8]? { try sink.finish() }
}
