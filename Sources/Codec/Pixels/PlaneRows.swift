internal import CCodecs
internal import Jobs

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
