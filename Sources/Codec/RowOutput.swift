internal import Jobs

/// What becomes of a variant's rows once they are scaled.
protocol RowOutput: AnyObject {
  /// The pixels that a sample of a plane stands for, along each side.
  func chroma(of plane: Int) -> Int
  /// Whether planes' rows are taken as they come, not all planes' at once.
  var takesAny: Bool { get }
  /// Takes the next row of some planes, which is ready.
  func take(_ group: ScaledPlanes) throws(CodecError)
  /// After the last row: writes for some milliseconds.
  /// - Returns: the whole file, at the end.
  func finish() throws(CodecError) -> [UInt8]?
}
