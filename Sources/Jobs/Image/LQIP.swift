/// A low-quality image placeholder: a few bytes from which a page can draw the upright image until it
/// arrives.
package struct LQIP: Sendable, Equatable, Codable {
  /// A ThumbHash: a blurred image with the proportions and the transparency of the original, in 5 to 25
  /// bytes.
  package var thumbHash: [UInt8]
  /// The mean of the most frequent group of colors: red, green, blue, each 0 to 255.
  package var dominantColor: [UInt8]

  package init(thumbHash: [UInt8], dominantColor: [UInt8]) {
    self.thumbHash = thumbHash
    self.dominantColor = dominantColor
  }
}
