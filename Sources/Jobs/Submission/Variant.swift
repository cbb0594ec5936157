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

/// A variant that a job requests with its image.
package struct VariantRequest: Sendable, Hashable, Codable {
  /// The maximum for one job.
  package static let most = 8

  /// The name within the job: 1 to 32 characters of `[a-z0-9_-]`.
  package var name: String
  /// In pixels of the upright image.
  package var width: Int?
  /// In pixels of the upright image.
  package var height: Int?
  package var fit: Variant.Fit = .contain
  /// Where ``Variant/Fit/cover`` crops the image.
  package var position: Variant.Position = .center
  /// Whether ``Variant/Fit/contain`` may enlarge.
  package var enlarge = false
  /// Nil means the image's own format, if it can be written.
  package var format: OutputFormat?
  /// 1 to 100; nil means the encoder's default.
  package var quality: Int?
  /// The background of transparent pixels.
  package var background: Variant.Color?
  /// Whether all frames of an animation are shown.
  package var isAnimated = false

  /// Like ``Variant/shrink``. Not set by clients.
  package var shrink: Int?

  /// The complete image at its own size.
  package init(name: String) { self.name = name }

  /// The same options as a variant's.
  package init(_ variant: Variant, name: String = "") {
    self.name = name
    (width, height, fit) = (variant.width, variant.height, variant.fit)
    (position, enlarge) = (variant.position, variant.enlarge)
    (format, quality, background) = (variant.format, variant.quality, variant.background)
    isAnimated = variant.isAnimated
    shrink = variant.shrink
  }

  /// The request without its name, so that it is equal for all jobs that want the same result.
  package var recipe: VariantRequest {
    var recipe = self
    recipe.name = ""
    return recipe
  }

  /// Returns the variant for an image of the given format.
  /// - Parameters:
  ///   - isTransparent: Whether the result can have transparent pixels.
  ///   - formats: The formats that can be written, at least one.
  package func variant(
    of format: ImageFormat, isTransparent: Bool, formats: Set<OutputFormat>
  ) -> Variant {
    let animated: OutputFormat? = isAnimated && formats.contains(.webp) ? .webp : nil
    let choice =
      self.format ?? animated
      ?? OutputFormat.plain(for: format, isTransparent: isTransparent, of: formats)
    var variant = Variant(format: choice)
    variant.isAnimated = isAnimated
    (variant.width, variant.height, variant.fit) = (width, height, fit)
    (variant.position, variant.enlarge) = (position, enlarge)
    (variant.quality, variant.background) = (quality, background)
    variant.shrink = shrink
    return variant
  }
}

extension OutputFormat {
  /// The default format: the image's own, otherwise PNG for a transparent image and JPEG for an opaque one.
  static func plain(
    for image: ImageFormat, isTransparent: Bool, of formats: Set<OutputFormat>
  ) -> OutputFormat {
    let own = OutputFormat(rawValue: image.rawValue)
    let order = [own] + (isTransparent ? [.png, .jpeg] : [.jpeg, .png]) + [.webp, .avif]
    return order.compactMap { $0 }.first(where: formats.contains) ?? .jpeg
  }
}

/// A variant that was made for a job.
package struct MadeVariant: Sendable, Equatable, Codable {
  /// The name within the job.
  package var name: String
  /// In pixels, upright.
  package var width: Int
  /// In pixels, upright.
  package var height: Int
  package var format: OutputFormat
  /// The size in bytes.
  package var bytes: Int
  /// A strong entity tag of the bytes.
  package var entityTag: String

  package init(_ name: String, _ rendition: Rendition, _ made: RenderedBytes) {
    (self.name, bytes, entityTag) = (name, made.bytes.count, made.entityTag)
    (width, height, format) = (rendition.width, rendition.height, rendition.variant.format)
  }
}
