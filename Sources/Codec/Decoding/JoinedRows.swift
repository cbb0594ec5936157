internal import CCodecs
internal import Jobs

/// Joins scaled planes to rows of pixels, converts their colors, turns them upright and encodes them. Works for all
/// formats.
final class JoinedRows: RowOutput {
  private let layout: SampleLayout
  private let geometry: VariantGeometry
  private let orientation: Int
  private let colours: RowColours
  private let sink: PixelSink
  private let joined: RowBuffer
  /// The whole scaled image; needed only if it must be turned upright.
  private let picture: RowBuffer?
  private let planes: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>
  private var gathered = 0
  private var done = 0
  private var turned = 0

  init(
    _ layout: SampleLayout, _ geometry: VariantGeometry, _ image: ImageDescription,
    _ variant: Variant, writing: PixelWriting
  ) throws(CodecError) {
    (self.layout, self.geometry, orientation) = (layout, geometry, image.orientation)
    let (size, widest) = (geometry.scaled, max(geometry.scaled.width, geometry.scaled.height))
    colours = RowColours(layout, writing, background: variant.background, pixels: widest)
    sink = try PixelSink(
      writing, size: geometry.size, channels: colours.channels, quality: variant.quality)
    joined = RowBuffer(count: widest * 4 * StreamingRendering.batch)
    picture = orientation > 1 ? RowBuffer(count: size.width * size.height * colours.channels) : nil
    planes = .allocate(capacity: layout.planes.count)
  }

  deinit { planes.deallocate() }

  func chroma(of plane: Int) -> Int { 1 }
  var acceptsPlanesSeparately: Bool { false }

  func encode(_ group: ScaledPlanes) throws(CodecError) {
    group.pull()
    for (index, plane) in group.range.enumerated() { planes[plane] = group.out[index] }
    gathered += group.range.count
    guard gathered == layout.planes.count else { return }
    gathered = 0
    try encodeRow()
  }

  private func encodeRow() throws(CodecError) {
    let (width, channels) = (geometry.scaled.width, colours.channels)
    guard done < geometry.scaled.height, let first = planes[0] else { return }
    var row = UnsafePointer(first)
    if layout.isYCC { colour_from_ycc(planes, width, layout.isInked) }
    if layout.planes.count > 1 {
      planes.withMemoryRebound(to: UnsafePointer<UInt8>?.self, capacity: layout.planes.count) {
        colour_join($0, Int32(layout.planes.count), joined.start, width)
      }
      row = UnsafePointer(joined.start)
    }
    let shown = colours.run(row, pixels: width)
    if let picture {
      let place = picture.start + done * width * channels
      place.update(from: shown, count: width * channels)
    } else {
      try sink.write(shown, count: 1)
    }
    done += 1
  }

  func finish() throws(CodecError) -> [UInt8]? {
    guard done == geometry.scaled.height else { throw .cutShort }
    guard let picture, turned < geometry.size.height else { return try sink.finish() }
    let end = ContinuousClock.now + StreamingRendering.slice
    let (size, stored, channels) = (geometry.size, geometry.scaled, colours.channels)
    repeat {
      let count = min(StreamingRendering.batch, size.height - turned)
      orientation_rows(
        picture.start, UInt32(stored.width), UInt32(stored.height), Int32(channels),
        Int32(orientation), UInt32(turned), Int32(count), joined.start, size.width * channels)
      try sink.write(joined.start, count: count)
      turned += count
    } while turned < size.height && ContinuousClock.now < end
    return nil
  }
}
