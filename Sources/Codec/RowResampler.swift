internal import CCodecs
internal import Jobs

/// Owns one C resampler.
final class RowResampler {
  /// The most rows that it takes at once.
  static let batch = Int(RESAMPLER_BATCH)

  private let resampler: OpaquePointer
  private let strides: (read: Int, scaled: Int)

  init(_ source: PixelSource, _ geometry: VariantGeometry) throws(CodecError) {
    let (read, scaled) = (source.size, geometry.scaled)
    guard
      let resampler = resampler_open(
        UInt32(read.width), UInt32(read.height), Int32(source.channels), source.hasAlpha,
        geometry.box(in: read), UInt32(scaled.width), UInt32(scaled.height))
    else {
      // There is less than was reckoned with.
      let reckoned = Self.memory(geometry)
      throw .tooMuchMemory(bytes: reckoned, limit: reckoned)
    }
    self.resampler = resampler
    strides = (read.width * source.channels, scaled.width * source.channels)
  }

  deinit { resampler_close(resampler) }

  /// An upper bound of what one holds, in bytes.
  static func memory(_ geometry: VariantGeometry) -> Int {
    let (stored, scaled) = (geometry.stored, geometry.scaled)
    return resampler_memory(
      UInt32(stored.width), UInt32(stored.height), 4, geometry.crop, UInt32(scaled.width),
      UInt32(scaled.height))
  }

  /// Takes rows; only after ``pull(into:count:)`` had none.
  func push(_ rows: UnsafePointer<UInt8>, count: Int) {
    resampler_push(resampler, rows, strides.read, Int32(count))
  }

  /// Gives rows that are ready; 0 where it needs some first.
  func pull(into rows: UnsafeMutablePointer<UInt8>, count: Int) -> Int {
    Int(resampler_pull(resampler, rows, strides.scaled, Int32(count)))
  }
}
