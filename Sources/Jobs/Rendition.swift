/// A variant of a kept image or of a placeholder, said in one way however it was asked for: what is equal is rendered and
/// kept once.
public struct Rendition: Sendable, Equatable {
  /// What there can be variants of.
  public enum Source: Sendable, Equatable {
    /// A kept image.
    case image(StoredImage)
    /// The operator's placeholder.
    case picture(PlaceholderPicture)
    /// The built-in one.
    case drawing(Placeholder)
  }

  /// Grows with every release that makes other bytes of the same image: those kept before are found no more.
  static let recipe = 2

  /// What it is made of.
  public let source: Source
  /// Different from every other's of this image that comes out otherwise.
  public let variant: Variant
  /// Of what comes out, in pixels.
  public let width: Int
  /// Of what comes out, in pixels.
  public let height: Int
  /// What tells it from all others, whichever service renders it.
  public private(set) var id: CacheEntry.ID
  /// Equal for those that one decode may make together; nil: it is rendered alone.
  package private(set) var decode: Fingerprint?

  /// - Parameter renderer: knows what size comes out, and how the image is read for it.
  public init(of image: StoredImage, as variant: Variant, by renderer: any ImageRenderer) {
    let size = renderer.size(of: variant, from: image.description)
    var plain = variant.normalised(to: size, of: image.description)
    let own = renderer.shrink(for: plain, from: image.description)
    let shrink = min(own, variant.shrink ?? own)
    plain.shrink = shrink < own ? shrink : nil
    self.init(.image(image), plain, size, key: Self.key(of: image.digest), shrink: shrink)
  }

  /// - Parameter renderer: knows what size comes out.
  public init(of picture: PlaceholderPicture, as variant: Variant, by renderer: any ImageRenderer) {
    let size = renderer.size(of: variant, from: picture.description)
    let variant = variant.normalised(to: size, of: picture.description)
    self.init(.picture(picture), variant, size, key: Self.key(of: picture.digest))
  }

  /// The most that is drawn: there is nothing to see that a browser couldn't enlarge.
  private static let drawnPixels = 4_194_304
  private static let drawnSide = 8_192

  /// - Parameter variant: 480 × 360 where it has neither side, and in these proportions where it has one. A larger one
  ///   than 4 megapixels, or than 8,192 on a side, is drawn smaller.
  public init(drawing placeholder: Placeholder, as variant: Variant) {
    // Bounded, so that the arithmetic can't overflow.
    let asked = [variant.width, variant.height].map { $0.map { min(max(1, $0), 1 << 24) } }
    var width = asked[0] ?? asked[1].map { max(1, $0 * 4 / 3) } ?? 480
    var height = asked[1] ?? max(1, width * 3 / 4)
    (width, height) = Self.drawn(width, height)
    var plain = variant
    (plain.width, plain.height, plain.fit) = (width, height, .fill)
    if plain.format == .png { plain.quality = nil }
    let key = Fingerprint(of: ["drawings", placeholder.rawValue])
    self.init(.drawing(placeholder), plain, (width, height), key: key)
  }

  private static func drawn(_ width: Int, _ height: Int) -> (width: Int, height: Int) {
    let (across, down) = (Double(width), Double(height))
    let scale = min(
      1, (Double(drawnPixels) / (across * down)).squareRoot(), Double(drawnSide) / max(across, down)
    )
    return (max(1, Int(across * scale)), max(1, Int(down * scale)))
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
    // To write AVIF takes many times what to read a picture does: nobody else should wait for it.
    // Nor for an animation's frames. What would be read at another scale alone comes out otherwise.
    if case .image = source, variant.format != .avif, !variant.isAnimated {
      decode = Fingerprint(of: [key.hex, "read at 1/\(shrink)"])
    }
  }

  /// The same, rendered and kept for one owner alone: how soon it comes tells nothing of others.
  package func apart(for owner: Owner) -> Rendition {
    var own = self
    own.id.selector = Fingerprint(of: [id.selector.hex, "owner", owner.name])
    own.decode = decode.map { Fingerprint(of: [$0.hex, "owner", owner.name]) }
    return own
  }

  /// A name in memory.
  package var digest: ImageDigest {
    ImageDigest(bytes: Fingerprint(of: [id.key.hex, id.selector.hex]).bytes)!  // 32 of them
  }

  /// What the variants of one image are kept under. Not to be mixed up with a resource's key, which has other parts.
  package static func key(of image: ImageDigest) -> Fingerprint {
    Fingerprint(of: ["variants of an image", image.hex])
  }
}

/// The bytes that a rendition came out as.
///
/// One recipe may come out otherwise for another job: a JPEG that is decoded for several variants at once is read at the
/// scale which the largest of them needs. So the tag is the bytes' own.
public struct RenderedBytes: Sendable {
  /// The bytes.
  public let bytes: StoredBytes
  /// Strong (RFC 9110 section 8.8.3).
  public let entityTag: String
  /// Their part of a limit, to be kept as long as they are.
  public let share: (any Sendable & AnyObject)?

  /// Bytes and their tag.
  public init(
    _ bytes: StoredBytes, entityTag: String, share: (any Sendable & AnyObject)? = nil
  ) {
    (self.bytes, self.entityTag, self.share) = (bytes, entityTag, share)
  }

  /// Bytes in memory.
  public init(_ bytes: [UInt8]) {
    self.init(.memory(bytes), entityTag: ImageDigest(of: bytes).entityTag)
  }
}

extension Variant {
  /// Everything about it, for people and for its fingerprint: `webp 320x240 cover q80 #ffffff`.
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

  /// The same picture without what makes no difference to it.
  /// - Parameter size: what comes out.
  fileprivate func normalised(
    to size: (width: Int, height: Int), of image: ImageDescription
  ) -> Variant {
    var plain = Variant(format: format)
    if crops(image) {
      (plain.width, plain.height, plain.fit) = (width, height, .cover)
      // In the other direction nothing is cut off.
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
  /// In pixels, turned as the orientation says: 5 to 8 lie on their side.
  public var uprightSize: (width: Int, height: Int) {
    orientation > 4 ? (height, width) : (width, height)
  }
}
