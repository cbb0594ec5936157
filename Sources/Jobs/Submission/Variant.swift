/// The options of an image made from a stored one: resized, upright, in sRGB, without metadata.
package struct Variant: Sendable, Hashable {
  /// How an image is fitted to a size with other proportions.
  package enum Fit: String, Sendable, CaseIterable, Codable {
    /// The complete image within the size. The result may be smaller in one direction. Enlarged only if
    /// ``enlarge`` is true.
    case contain
    /// Fills the size and cuts off the rest.
    case cover
    /// Exactly the size, without keeping the proportions.
    case fill
    /// Like `contain`, but never enlarged.
    case scaleDown = "scale-down"
  }

  /// A background color for transparent pixels.
  package struct Color: Sendable, Hashable, Codable {
    /// 0 to 255.
    package var red, green, blue: UInt8

    package init(red: UInt8, green: UInt8, blue: UInt8) {
      (self.red, self.green, self.blue) = (red, green, blue)
    }
  }

  /// Which part of a cropped image is kept: the percentage of the excess that is cut off at the left and at
  /// the top.
  package struct Position: Sendable, Hashable, Codable {
    /// The percentage of the excess width that is cut off at the left; 0 keeps the left edge.
    package var x: Int
    /// The percentage of the excess height that is cut off at the top; 0 keeps the top edge.
    package var y: Int

    package static let center = Position(x: 50, y: 50)

    /// - Parameters: percentages, 0 to 100.
    package init(x: Int, y: Int) { (self.x, self.y) = (x, y) }
  }

  /// The width in pixels of the upright image; nil: computed from the height, or the image's own.
  package var width: Int?
  /// The height in pixels of the upright image; nil: computed from the width, or the image's own.
  package var height: Int?
  package var fit: Fit = .contain
  /// Where ``Fit/cover`` crops the upright image.
  package var position = Position.center
  /// Whether ``Fit/contain`` may enlarge.
  package var enlarge = false
  package var format: OutputFormat
  /// 1 to 100; nil means the encoder's default. Ignored for PNG.
  package var quality: Int?
  /// The background of transparent pixels; nil keeps them transparent, or white in a JPEG.
  package var background: Color?

  /// Whether a WebP shows all frames of an animation. Other formats, and WebP without this option, show the
  /// first frame.
  package var isAnimated = false

  /// The factor by which a JPEG's sides are reduced while it is read, if other variants of the same decode
  /// need a smaller factor. It changes the pixels. Nil means ``ImageRenderer/shrink(for:from:)``.
  package var shrink: Int?

  /// The complete image at its own size.
  package init(format: OutputFormat) { self.format = format }
}

/// The formats that can be written.
package enum OutputFormat: String, Sendable, CaseIterable, Codable {
  case jpeg, png, webp, avif

  /// The same format as an ``ImageFormat``.
  package var imageFormat: ImageFormat {
    switch self {
    case .jpeg: .jpeg
    case .png: .png
    case .webp: .webp
    case .avif: .avif
    }
  }

  /// The media type in responses.
  package var contentType: String { imageFormat.contentType }
  /// The usual file extension, without the dot.
  package var fileExtension: String { imageFormat.fileExtension }
}
