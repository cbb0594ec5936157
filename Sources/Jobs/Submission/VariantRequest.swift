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
  package static func plain(
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
