internal import CCodecs
internal import Jobs

/// Makes one variant from an image's rows as they arrive: scales them, converts them to sRGB, turns them upright and
/// encodes them. The whole image is never in memory.
final class VariantPipeline {
  private let rows: any RowOutput
  private let groups: [ScaledPlanes]

  /// - Parameters:
  ///   - image: only its sides and its orientation are used.
  ///   - writing: the encoder; nil means the variant's format.
  init(
    _ layout: SampleLayout, _ image: ImageDescription, _ variant: Variant,
    writing: PixelWriting? = nil
  ) throws(CodecError) {
    let geometry = VariantGeometry(of: variant, from: image)
    if let planes = try PlaneRows(layout, geometry, image, variant) {
      rows = planes
    } else {
      rows = try JoinedRows(
        layout, geometry, image, variant, writing: writing ?? variant.format.writing)
    }
    var groups: [ScaledPlanes] = []
    let ranges = layout.groups(rows.chroma)
    for range in ranges {
      groups.append(
        try ScaledPlanes(
          layout, range, geometry, chroma: rows.chroma(of: range.lowerBound),
          waits: ranges.count > 1 && !rows.acceptsPlanesSeparately))
    }
    self.groups = groups
  }

  /// An upper bound of the memory one pipeline needs, in bytes, even if the decoder does not scale down.
  static func memory(for variant: Variant, from image: ImageDescription) -> Int {
    let geometry = VariantGeometry(of: variant, from: image)
    let (size, stored) = (geometry.size, geometry.stored)
    let writing = variant.format.writing
    let quality = Int32(clamping: variant.quality ?? writing.defaultQuality)
    let file = writing.maxBytes(
      UInt32(clamping: size.width), UInt32(clamping: size.height), 4, quality)
    let longest = max(size.width, size.height)
    let window = longest * (variant.format == .jpeg ? 4 * Int(JPEG_ENCODER_AHEAD) : 0)
    let turned = image.orientation > 1 ? size.width * size.height * 4 : 0
    let scaling = RowResampler.Scaling(
      size: stored, box: geometry.crop, scaled: geometry.scaled, channels: 4, waits: true)
    // The file counts twice: in the encoder, and as the returned copy.
    return scaling.memory + 64 * longest + window + turned + writing.memory(size) + 2 * file
  }

  /// Adds the next rows of each plane.
  func add(_ planes: [SampleRows]) throws(CodecError) {
    for group in groups {
      for row in 0..<planes[group.range.lowerBound].count {
        group.push(planes, row: row)
        if groups.count == 1 || rows.acceptsPlanesSeparately { try encodeReadyRows(of: group) }
      }
    }
    if groups.count > 1, !rows.acceptsPlanesSeparately { try encodeReadyRows() }
  }

  /// Encodes for some milliseconds. Call it after the last row, until it returns the file.
  /// - Returns: the complete file, or nil if work is left.
  func finish() throws(CodecError) -> [UInt8]? { try rows.finish() }

  private func encodeReadyRows(of group: ScaledPlanes) throws(CodecError) {
    while group.isReady { try rows.encode(group) }
  }

  private func encodeReadyRows() throws(CodecError) {
    while groups.allSatisfy(\.isReady) {
      for group in groups { try rows.encode(group) }
    }
  }
}
