internal import CCodecs
internal import Jobs

/// Owns one C resampler. It scales all channels of a row together, or several planes of equal size.
final class RowResampler {
  /// The most rows that it accepts at once.
  static let batch = Int(RESAMPLER_BATCH)

  /// A scaling task: the source, the part of it that is shown, and the size of the result.
  struct Scaling {
    /// The size of the plane.
    var size: VariantGeometry.Size
    /// The part of the plane that is shown.
    var box: ResamplerBox
    /// The size of the result.
    var scaled: VariantGeometry.Size
    var channels: Int
    var hasAlpha = false
    /// Whether its rows must wait for the rows of other planes.
    var waits = false
    var filter = ResamplerFilter.lanczos

    /// How many of this plane's rows may have to wait. Another plane may have one sample for four of these rows, and
    /// a decoder returns several rows at once.
    fileprivate var slack: UInt32 {
      guard waits else { return 0 }
      return UInt32(3 * max((box.bottom - box.top) / Double(scaled.height), 4).rounded(.up)) + 28
    }

    /// An upper bound of the memory that one resampler needs, in bytes.
    var memory: Int {
      resampler_memory(
        UInt32(clamping: size.width), UInt32(clamping: size.height), Int32(channels), box,
        UInt32(clamping: scaled.width), UInt32(clamping: scaled.height), slack)
    }
  }

  private let resampler: OpaquePointer

  init(_ task: Scaling) throws(CodecError) {
    let (size, scaled) = (task.size, task.scaled)
    guard
      let resampler = resampler_open(
        UInt32(size.width), UInt32(size.height), Int32(task.channels), task.hasAlpha, task.box,
        UInt32(scaled.width), UInt32(scaled.height), task.slack, task.filter)
    else {
      // Less memory is available than was reserved.
      throw .tooMuchMemory(bytes: task.memory, limit: task.memory)
    }
    self.resampler = resampler
  }

  deinit { resampler_close(resampler) }

  /// Whether a row can be pulled.
  var isReady: Bool { resampler_is_ready(resampler) }

  /// Adds a row with its channels interleaved. Call it only if no row can be pulled, except within the slack.
  func push(_ row: UnsafePointer<UInt8>) { resampler_push(resampler, row, 0, 1) }

  /// Adds a row of each plane, under the same condition.
  func push(planes: UnsafePointer<UnsafePointer<UInt8>?>) {
    resampler_push_planes(resampler, planes)
  }

  /// Writes a row that is ready, its channels interleaved.
  /// - Returns: false if no row was ready.
  func pull(into row: UnsafeMutablePointer<UInt8>) -> Bool {
    resampler_pull(resampler, row, 0, 1) == 1
  }

  /// Writes a row of each plane, in the same way.
  func pull(into planes: UnsafePointer<UnsafeMutablePointer<UInt8>?>) -> Bool {
    resampler_pull_planes(resampler, planes) == 1
  }
}

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
