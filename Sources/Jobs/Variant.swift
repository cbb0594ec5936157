/// A picture made from a kept image: scaled, upright, in sRGB, without metadata.
public struct Variant: Sendable, Hashable {
  /// How a picture is brought to a size that has other proportions.
  public enum Fit: String, Sendable, CaseIterable, Codable {
    /// Whole, within the size, and enlarged only where that is asked for: what comes out may be smaller in one
    /// direction.
    case contain
    /// Fills the size; what is too much is cut off.
    case cover
    /// Exactly the size, proportions or not.
    case fill
    /// As `contain`, never enlarged.
    case scaleDown = "scale-down"
  }

  /// A colour to paint behind what is transparent.
  public struct Color: Sendable, Hashable, Codable {
    /// 0 to 255.
    public var red, green, blue: UInt8

    /// An opaque colour.
    public init(red: UInt8, green: UInt8, blue: UInt8) {
      (self.red, self.green, self.blue) = (red, green, blue)
    }
  }

  /// What stays of a picture that is cut off: how much of what is too much lies before it.
  public struct Position: Sendable, Hashable, Codable {
    /// To the left, in percent of what is too wide: 0 shows the left edge.
    public var x: Int
    /// Above, in percent of what is too high: 0 shows the top.
    public var y: Int

    /// The middle.
    public static let center = Position(x: 50, y: 50)

    /// - Parameters: percents, 0 to 100.
    public init(x: Int, y: Int) { (self.x, self.y) = (x, y) }
  }

  /// In pixels of the upright picture; nil: follows from the height, or is the image's own.
  public var width: Int?
  /// In pixels of the upright picture; nil: follows from the width, or is the image's own.
  public var height: Int?
  /// How it is brought to that size.
  public var fit: Fit = .contain
  /// Where ``Fit/cover`` cuts off, in the upright picture.
  public var position = Position.center
  /// Whether ``Fit/contain`` may enlarge.
  public var enlarge = false
  /// The format that is written.
  public var format: OutputFormat
  /// 1 to 100; nil: the encoder's default. Means nothing to PNG.
  public var quality: Int?
  /// Painted behind what is transparent; nil: stays transparent, in JPEG white.
  public var background: Color?

  /// Whether all frames of an animation are shown, in WebP; otherwise, and in other formats, the first.
  public var isAnimated = false

  /// How many times shorter a JPEG's sides are read, where others beside it need more of them than it does by itself:
  /// other pixels come of that. Nil: see ``ImageRenderer/shrink(for:from:)``.
  package var shrink: Int?

  /// The whole picture at its own size.
  public init(format: OutputFormat) { self.format = format }
}

/// The formats that can be written.
public enum OutputFormat: String, Sendable, CaseIterable, Codable {
  case jpeg, png, webp, avif

  /// The same among those that can be read.
  public var imageFormat: ImageFormat {
    switch self {
    case .jpeg: .jpeg
    case .png: .png
    case .webp: .webp
    case .avif: .avif
    }
  }

  /// The media type it is served as.
  public var contentType: String { "image/\(rawValue)" }
  /// The usual ending of a file's name, without the dot.
  public var fileExtension: String { self == .jpeg ? "jpg" : rawValue }
}
