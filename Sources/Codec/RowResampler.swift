internal import CCodecs
internal import Jobs

/// Owns one C resampler: of all channels side by side, or of some planes of equal sides.
final class RowResampler {
  /// The most rows that it takes at once.
  static let batch = Int(RESAMPLER_BATCH)

  /// What of a plane is scaled to what.
  struct Task {
    /// Of the plane.
    var size: VariantGeometry.Size
    /// What is shown of it.
    var box: ResamplerBox
    /// Of what comes out.
    var scaled: VariantGeometry.Size
    var channels: Int
    var hasAlpha = false
    /// Whether others' rows have to come before its own are taken.
    var waits = false
    var filter = ResamplerFilter.lanczos

    /// In the plane's rows: what another one may be behind, which has a sample for as many as four of this one's rows,
    /// and the rows that a decoder gives at once.
    fileprivate var slack: UInt32 {
      guard waits else { return 0 }
      return UInt32(3 * max((box.bottom - box.top) / Double(scaled.height), 4).rounded(.up)) + 28
    }

    /// An upper bound of what one holds, in bytes.
    var memory: Int {
      resampler_memory(
        UInt32(clamping: size.width), UInt32(clamping: size.height), Int32(channels), box,
        UInt32(clamping: scaled.width), UInt32(clamping: scaled.height), slack)
    }
  }

  private let resampler: OpaquePointer

  init(_ task: Task) throws(CodecError) {
    let (size, scaled) = (task.size, task.scaled)
    guard
      let resampler = resampler_open(
        UInt32(size.width), UInt32(size.height), Int32(task.channels), task.hasAlpha, task.box,
        UInt32(scaled.width), UInt32(scaled.height), task.slack, task.filter)
    else {
      // There is less than was reckoned with.
      throw .tooMuchMemory(bytes: task.memory, limit: task.memory)
    }
    self.resampler = resampler
  }

  deinit { resampler_close(resampler) }

  /// Whether a row can be pulled.
  var isReady: Bool { resampler_is_ready(resampler) }

  /// Takes a row with its channels side by side; only where none can be pulled, but for the slack.
  func push(_ row: UnsafePointer<UInt8>) { resampler_push(resampler, row, 0, 1) }

  /// Takes a row of each plane, likewise.
  func push(planes: UnsafePointer<UnsafePointer<UInt8>?>) {
    resampler_push_planes(resampler, planes)
  }

  /// Gives a row that is ready, its channels side by side.
  /// - Returns: whether there was one.
  func pull(into row: UnsafeMutablePointer<UInt8>) -> Bool {
    resampler_pull(resampler, row, 0, 1) == 1
  }

  /// Gives a row of each plane, likewise.
  func pull(into planes: UnsafePointer<UnsafeMutablePointer<UInt8>?>) -> Bool {
    resampler_pull_planes(resampler, planes) == 1
  }
}
