/// A variant that a job wants made with its image.
public struct VariantRequest: Sendable, Hashable, Codable {
  /// The most of one job.
  public static let most = 8

  /// Its name in the job: 1 to 32 of `[a-z0-9_-]`.
  public var name: String
  /// In pixels of the upright picture.
  public var width: Int?
  /// In pixels of the upright picture.
  public var height: Int?
  /// How it is brought to that size.
  public var fit: Variant.Fit = .contain
  /// Where ``Variant/Fit/cover`` cuts off.
  public var position: Variant.Position = .center
  /// Whether ``Variant/Fit/contain`` may enlarge.
  public var enlarge = false
  /// Nil: the image's own, where that can be written.
  public var format: OutputFormat?
  /// 1 to 100; nil: the encoder's default.
  public var quality: Int?
  /// Painted behind what is transparent.
  public var background: Variant.Color?
  /// Whether all frames of an animation are shown.
  public var isAnimated = false

  /// As ``Variant/shrink``; no client says it.
  package var shrink: Int?

  /// The whole picture at its own size.
  public init(name: String) { self.name = name }

  /// What is known already.
  public init(_ variant: Variant, name: String = "") {
    self.name = name
    (width, height, fit) = (variant.width, variant.height, variant.fit)
    (position, enlarge) = (variant.position, variant.enlarge)
    (format, quality, background) = (variant.format, variant.quality, variant.background)
    isAnimated = variant.isAnimated
    shrink = variant.shrink
  }

  /// The same for all jobs that want it, whatever they call it.
  package var recipe: VariantRequest {
    var recipe = self
    recipe.name = ""
    return recipe
  }

  /// What it comes to for an image of that format.
  /// - Parameters:
  ///   - isTransparent: whether what comes out can be.
  ///   - formats: those that can be written, at least one.
  public func variant(
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
  /// Where nobody names one: the image's own, else PNG or JPEG.
  package static func plain(
    for image: ImageFormat, isTransparent: Bool, of formats: Set<OutputFormat>
  ) -> OutputFormat {
    let own = OutputFormat(rawValue: image.rawValue)
    let order = [own] + (isTransparent ? [.png, .jpeg] : [.jpeg, .png]) + [.webp, .avif]
    return order.compactMap { $0 }.first(where: formats.contains) ?? .jpeg
  }
}

/// A variant that was made with a job's image.
public struct MadeVariant: Sendable, Equatable, Codable {
  /// Its name in the job.
  public var name: String
  /// In pixels, upright.
  public var width: Int
  /// In pixels, upright.
  public var height: Int
  /// Of its bytes.
  public var format: OutputFormat
  /// How many there are.
  public var bytes: Int
  /// Of its bytes; strong.
  public var entityTag: String

  /// One that was made.
  package init(_ name: String, _ rendition: Rendition, _ made: RenderedBytes) {
    (self.name, bytes, entityTag) = (name, made.bytes.count, made.entityTag)
    (width, height, format) = (rendition.width, rendition.height, rendition.variant.format)
  }
}
