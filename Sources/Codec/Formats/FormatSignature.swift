/// Recognizes a format by the first bytes of a file. Each reader's file has the signature of its format.
struct FormatSignature: Sendable {
  /// Whether these first bytes are a file of the format.
  let matches: @Sendable ([UInt8]) -> Bool
  /// Whether these bytes are too few for a signature but could be the start of one.
  let isBegun: @Sendable ([UInt8]) -> Bool

  /// Matches any of several fixed beginnings.
  /// - Parameter least: with fewer bytes, `isBegun` is false, because they could begin any format.
  init(_ beginnings: [[UInt8]], least: Int = 1) {
    matches = { start in beginnings.contains(where: start.starts) }
    isBegun = { start in start.count >= least && beginnings.contains { $0.starts(with: start) } }
  }

  init(
    matches: @escaping @Sendable ([UInt8]) -> Bool, isBegun: @escaping @Sendable ([UInt8]) -> Bool
  ) {
    (self.matches, self.isBegun) = (matches, isBegun)
  }
}
