/// A picture made from a kept image: scaled, upright, in sRGB, without metadata.
public struct Variant: Sendable, Hashable {
  /// How a picture is brought to a size that has other proportions.
  public enum Fit: String, Sendable, CaseIterable {
    /// Whole, within the size, never enlarged: what comes out may be smaller in one direction.
    case contain
    /// Fills the size; what is too much on two sides is cut off, the same on both.
    case cover
    /// Exactly the size, proportions or not.
    case fill
    /// As `contain`.
    case scaleDown = "scale-down"
  }

  /// A colour to paint behind what is transparent.
  public struct Color: Sendable, Hashable {
    /// 0 to 255.
    public var red, green, blue: UInt8

    /// An opaque colour.
    public init(red: UInt8, green: UInt8, blue: UInt8) {
      (self.red, self.green, self.blue) = (red, green, blue)
    }
  }

  /// In pixels of the upright picture; nil: follows from the height, or is the image's own.
  public var width: Int?
  /// In pixels of the upright picture; nil: follows from the width, or is the image's own.
  public var height: Int?
  /// How it is brought to that size.
  public var fit: Fit = .contain
  /// The format that is written.
  public var format: OutputFormat
  /// 1 to 100; nil: the encoder's default. Means nothing to PNG.
  public var quality: Int?
  /// Painted behind what is transparent; nil: stays transparent, in JPEG white.
  public var background: Color?

  /// The whole picture at its own size.
  public init(format: OutputFormat) { self.format = format }
}

/// The formats that can be written.
public enum OutputFormat: String, Sendable, CaseIterable, Codable {
  case jpeg, png, webp, avif

  /// The media type it is served as.
  public var contentType: String { "image/\(rawValue)" }
  /// The usual ending of a file's name, without the dot.
  public var fileExtension: String { self == .jpeg ? "jpg" : rawValue }
}
