internal import Jobs

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
