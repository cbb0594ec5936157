/// A few bytes that stand for an image until it is there, of the upright picture.
public struct LQIP: Sendable, Equatable, Codable {
  /// A ThumbHash: a blurred picture with its proportions and transparency in 5 to 25 bytes.
  public var thumbHash: [UInt8]
  /// The mean of the most frequent kind of colour: red, green, blue.
  public var dominantColor: [UInt8]

  /// A placeholder.
  public init(thumbHash: [UInt8], dominantColor: [UInt8]) {
    self.thumbHash = thumbHash
    self.dominantColor = dominantColor
  }
}
