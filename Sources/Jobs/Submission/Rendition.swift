/// A variant with all its options resolved, so that equal variants have equal renditions. Equal renditions
/// are rendered and stored once.
package struct Rendition: Sendable, Equatable {
  /// The source of a rendition.
  package enum Source: Sendable, Equatable {
    /// A stored image.
    case image(StoredImage)
    /// A placeholder image.
    case placeholder(PlaceholderImage)
  }

  /// Increased by each release that produces other bytes from the same image. Older renditions are then no
  /// longer found.
  static let recipe = 2

  package let source: Source
  /// The resolved options. Renditions of one image that look different have different options.
  package let variant: Variant
  /// Width of the result in pixels.
  package let width: Int
  /// Height of the result in pixels.
  package let height: Int
  /// Identifies the rendition. Equal on all instances.
  package private(set) var id: CacheEntry.ID
  /// Equal for renditions that one decode may make together; nil if this one is rendered alone.
  package private(set) var decode: Fingerprint?

  /// - Parameter renderer: Computes the size of the result and the scale at which the image is read.
  package init(of image: StoredImage, as variant: Variant, by renderer: any ImageRenderer) {
    let size = renderer.size(of: variant, from: image.description)
    var plain = variant.normalised(to: size, of: image.description)
    let own = renderer.shrink(for: plain, from: image.description)
    let shrink = min(own, variant.shrink ?? own)
    plain.shrink = shrink < own ? shrink : nil
    self.init(.image(image), plain, size, key: Self.key(of: image.digest), shrink: shrink)
  }

  /// - Parameter renderer: Computes the size of the result.
  package init(of picture: PlaceholderImage, as variant: Variant, by renderer: any ImageRenderer) {
    let size = renderer.size(of: variant, from: picture.description)
    let variant = variant.normalised(to: size, of: picture.description)
    self.init(.placeholder(picture), variant, size, key: Self.key(of: picture.digest))
  }

  private init(
    _ source: Source, _ variant: Variant, _ size: (width: Int, height: Int), key: Fingerprint,
    shrink: Int = 1
  ) {
    self.source = source
    self.variant = variant
    (width, height) = size
    id = CacheEntry.ID(
      key: key, selector: Fingerprint(of: ["recipe \(Self.recipe)", variant.name]))
    // Encoding AVIF, or the frames of an animation, takes much longer than the decode. These renditions are
    // made alone, so that others need not wait. Variants read at different scales are not made together,
    // because the scale changes the pixels.
    if case .image = source, variant.format != .avif, !variant.isAnimated {
      decode = Fingerprint(of: [key.hex, "read at 1/\(shrink)"])
    }
  }

  /// The same rendition, but rendered and stored for one owner alone. Otherwise the response time would show
  /// whether another owner has requested it.
  package func unshared(for owner: Owner) -> Rendition {
    var own = self
    own.id.selector = Fingerprint(of: [id.selector.hex, "owner", owner.name])
    own.decode = decode.map { Fingerprint(of: [$0.hex, "owner", owner.name]) }
    return own
  }

  /// A digest that identifies the rendition in memory.
  package var digest: ImageDigest {
    ImageDigest(bytes: Fingerprint(of: [id.key.hex, id.selector.hex]).bytes)!  // always 32 bytes
  }

  /// The cache key of all variants of one image. Its parts differ from those of a resource's key.
  package static func key(of image: ImageDigest) -> Fingerprint {
    Fingerprint(of: ["variants of an image", image.hex])
  }
}

/// The bytes of a rendition.
///
/// Equal renditions can have different bytes: a JPEG that is decoded for several variants at once is read at
/// the scale of the largest one. Therefore the entity tag is computed from the bytes.
package struct RenderedBytes: Sendable {
  package let bytes: StoredBytes
  /// A strong entity tag (RFC 9110 section 8.8.3).
  package let entityTag: String
  /// The share of a memory limit that is released together with the bytes.
  package let share: (any Sendable & AnyObject)?

  package init(
    _ bytes: StoredBytes, entityTag: String, share: (any Sendable & AnyObject)? = nil
  ) {
    (self.bytes, self.entityTag, self.share) = (bytes, entityTag, share)
  }

  /// Bytes in memory.
  package init(_ bytes: [UInt8]) {
    self.init(.memory(bytes), entityTag: ImageDigest(of: bytes).entityTag)
  }
}

extension Variant {
  /// All options, for people and for the fingerprint, for example `webp 320x240 cover q80 #ffffff`.
  package var name: String {
    var words = [format.rawValue]
    if width != nil || height != nil {
      words.append("\(width.map(String.init) ?? "")x\(height.map(String.init) ?? "")")
      words.append(fit.rawValue)
      if position != .center { words.append("at \(position.x),\(position.y)") }
    }
    if let quality { words.append("q\(quality)") }
    if let background {
      words.append("#" + [background.red, background.green, background.blue].hexDigits)
    }
    if isAnimated { words.append("animated") }
    if let shrink { words.append("read at 1/\(shrink)") }
    return words.joined(separator: " ")
  }

  /// Returns the variant without options that do not change the result.
  /// - Parameter size: The size of the result.
  fileprivate func normalised(
    to size: (width: Int, height: Int), of image: ImageDescription
  ) -> Variant {
    var plain = Variant(format: format)
    if crops(image) {
      (plain.width, plain.height, plain.fit) = (width, height, .cover)
      // Nothing is cut off in the other direction.
      if isTooWide(image) { plain.position.x = position.x } else { plain.position.y = position.y }
    } else if size != image.uprightSize {
      (plain.width, plain.height, plain.fit) = (size.width, size.height, .fill)
    }
    plain.quality = format == .png ? nil : quality
    plain.isAnimated = isAnimated && image.frames > 1 && format == .webp
    if image.hasAlpha { plain.background = background ?? (format == .jpeg ? .white : nil) }
    return plain
  }

  private func crops(_ image: ImageDescription) -> Bool {
    guard fit == .cover, let width, let height else { return false }
    let own = image.uprightSize
    return width * own.height != height * own.width
  }

  private func isTooWide(_ image: ImageDescription) -> Bool {
    guard let width, let height else { return false }
    let own = image.uprightSize
    return own.width * height > width * own.height
  }
}

extension Variant.Color {
  fileprivate static let white = Variant.Color(red: 255, green: 255, blue: 255)
}

extension ImageDescription {
  /// Width and height in pixels after rotation. Orientations 5 to 8 swap them.
  package var uprightSize: (width: Int, height: Int) {
    orientation > 4 ? (height, width) : (width, height)
  }
}
