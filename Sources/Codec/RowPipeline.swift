internal import CCodecs
internal import Jobs

/// What a rendering holds: a source of rows, what they pass through, and an encoder.
final class RowPipeline {
  private enum Stage {
    case scaling
    /// The scaled picture is there, and is encoded from another corner on.
    case turning
    case finishing
  }

  private let geometry: VariantGeometry
  private let orientation: Int
  private let source: PixelSource
  /// Nil where the size stays as it is.
  private let resampler: RowResampler?
  private let colours: RowColours
  private let sink: PixelSink
  private let read, scaled: RowBuffer
  /// The whole scaled picture, where it is not upright.
  private let picture: RowBuffer?
  private var stage = Stage.scaling
  private var done = 0

  init(_ bytes: [UInt8], _ image: ImageDescription, _ variant: Variant) throws(CodecError) {
    let writing = variant.format.writing
    geometry = VariantGeometry(of: variant, from: image)
    orientation = image.orientation
    source = try PixelSource(bytes, image, least: geometry.leastRead)
    let (size, batch) = (geometry.scaled, StreamingRendering.batch)
    let isSame = geometry.isWhole && source.size == size
    resampler = isSame ? nil : try RowResampler(source, geometry)
    let widest = max(size.width, size.height)
    colours = RowColours(
      source, writing, background: variant.background, pixels: widest * batch)
    sink = try PixelSink(
      writing, size: geometry.size, channels: colours.channels, quality: variant.quality)
    read = RowBuffer(count: source.size.width * source.channels * batch)
    scaled = RowBuffer(count: widest * 4 * batch)
    picture = orientation > 1 ? RowBuffer(count: size.width * size.height * colours.channels) : nil
  }

  /// Does a batch of rows.
  /// - Returns: the whole file, at the end.
  func advance() throws(CodecError) -> [UInt8]? {
    switch stage {
    case .scaling: try scale()
    case .turning: try turn()
    case .finishing: return try sink.finish()
    }
    return nil
  }

  private func scale() throws(CodecError) {
    let count = try scaledRows()
    guard count > 0 else { return }
    let (width, channels) = (geometry.scaled.width, colours.channels)
    let rows = colours.run(scaled.start, pixels: width * count)
    if let picture {
      let place = picture.start + done * width * channels
      place.update(from: rows, count: count * width * channels)
    } else {
      try sink.write(rows, count: count)
    }
    done += count
    guard done == geometry.scaled.height else { return }
    stage = picture == nil ? .finishing : .turning
    done = 0
  }

  /// Fills ``scaled``; 0 where that needs another turn.
  private func scaledRows() throws(CodecError) -> Int {
    let batch = StreamingRendering.batch
    guard let resampler else {
      return try source.read(into: scaled.start, count: batch) ?? 0
    }
    let count = resampler.pull(into: scaled.start, count: batch)
    if count == 0, let taken = try source.read(into: read.start, count: batch) {
      resampler.push(read.start, count: taken)
    }
    return count
  }

  private func turn() throws(CodecError) {
    guard let picture else { return }
    let (size, stored, channels) = (geometry.size, geometry.scaled, colours.channels)
    let count = min(StreamingRendering.batch, size.height - done)
    orientation_rows(
      picture.start, UInt32(stored.width), UInt32(stored.height), Int32(channels),
      Int32(orientation), UInt32(done), Int32(count), scaled.start, size.width * channels)
    try sink.write(scaled.start, count: count)
    done += count
    if done == size.height { stage = .finishing }
  }
}
