internal import CCodecs
internal import Jobs

/// Scales one or more planes of equal size to a variant's size.
final class ScaledPlanes {
  let range: Range<Int>
  /// One row of each plane, or one row with interleaved channels. Filled by ``pull()``.
  let out: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>
  private let isJoined: Bool
  private let into: UnsafeMutablePointer<UnsafePointer<UInt8>?>
  private let buffers: [RowBuffer]
  /// Nil if the size does not change: then rows are copied.
  private let resampler: RowResampler?
  private var waiting: UnsafePointer<UInt8>?
  private let bytes: Int

  /// - Parameter chroma: how many pixels of the variant one sample covers, along each side.
  init(
    _ layout: SampleLayout, _ range: Range<Int>, _ geometry: VariantGeometry, chroma: Int,
    waits: Bool
  ) throws(CodecError) {
    self.range = range
    isJoined = layout.channels > 1
    let plane = layout.planes[range.lowerBound]
    let size = plane.size
    var task = geometry.task(
      of: plane, channels: layout.channels * range.count, hasAlpha: layout.hasAlpha, chroma: chroma,
      waits: waits)
    // At the image's own size, scale chroma exactly as decoders do.
    if geometry.isWhole, let full = layout.fullPlane, size != full.size, task.scaled == full.size,
      let pixels = plane.pixels, let fullPixels = full.pixels
    {
      let (across, down) = (
        pixels.width / fullPixels.width, pixels.height / fullPixels.height
      )
      task.filter = max(across, down) <= 2 ? .linear : .nearest
    }
    bytes = task.scaled.width * layout.channels
    // Rows that must wait for another plane's rows can't be copied directly.
    let isSame = geometry.isWhole && size == task.scaled && layout.planes.count == 1
    resampler = isSame ? nil : try RowResampler(task)
    let bytes = bytes
    buffers = range.map { _ in RowBuffer(count: bytes) }
    out = .allocate(capacity: range.count)
    into = .allocate(capacity: range.count)
    for (index, buffer) in buffers.enumerated() { out[index] = buffer.start }
  }

  deinit {
    out.deallocate()
    into.deallocate()
  }

  var isReady: Bool { resampler?.isReady ?? (waiting != nil) }

  func push(_ planes: [SampleRows], row: Int) {
    for (index, plane) in range.enumerated() { into[index] = planes[plane][row] }
    guard let first = into[0] else { return }
    guard let resampler else {
      waiting = first
      return
    }
    if isJoined { resampler.push(first) } else { resampler.push(planes: into) }
  }

  /// Fills ``out`` with the next row.
  func pull() {
    guard let target = out[0] else { return }
    if let resampler {
      _ = isJoined ? resampler.pull(into: target) : resampler.pull(into: out)
    } else if let row = waiting {
      target.update(from: row, count: bytes)
      waiting = nil
    }
  }
}
