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
