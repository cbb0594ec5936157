/// A variant of a kept image, said in one way however it was asked for: what is equal is rendered and kept once.
public struct Rendition: Sendable, Equatable {
  /// Grows with every release that makes other bytes of the same image: those kept before are found no more, and no
  /// client takes its copy for the new ones.
  static let recipe = 1

  /// What it is made of.
  public let image: StoredImage
  /// Different from every other's of this image that comes out otherwise.
  public let variant: Variant
  /// Of what comes out, in pixels.
  public let width: Int
  /// Of what comes out, in pixels.
  public let height: Int
  /// What tells it from all others, whichever service renders it.
  public let id: CacheEntry.ID

  /// - Parameter renderer: knows what size comes out.
  public init(of image: StoredImage, as variant: Variant, by renderer: any ImageRenderer) {
    let size = renderer.size(of: variant, from: image.description)
    self.image = image
    self.variant = variant.normalised(to: size, of: image.description)
    (width, height) = size
    id = CacheEntry.ID(
      key: Self.key(of: image.digest),
      selector: Fingerprint(of: ["recipe \(Self.recipe)", self.variant.name]))
  }

  /// A strong one (RFC 9110 section 8.8.3), known before anything is rendered.
  public var entityTag: String {
    "\"variant-\(Fingerprint(of: [id.key.hex, id.selector.hex]).hex)\""
  }

  /// What the variants of one image are kept under. Not to be mixed up with a resource's key, which has other parts.
  static func key(of image: ImageDigest) -> Fingerprint {
    Fingerprint(of: ["variants of an image", image.hex])
  }
}

extension Variant {
  /// Everything about it, for people and for its fingerprint: `webp 320x240 cover q80 #ffffff`.
  var name: String {
    var words = [format.rawValue]
    if width != nil || height != nil {
      words.append("\(width.map(String.init) ?? "")x\(height.map(String.init) ?? "")")
      words.append(fit.rawValue)
    }
    if let quality { words.append("q\(quality)") }
    if let background {
      words.append("#" + [background.red, background.green, background.blue].hexDigits)
    }
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
    } else if size != image.uprightSize {
      (plain.width, plain.height, plain.fit) = (size.width, size.height, .fill)
    }
    plain.quality = format == .png ? nil : quality
    if image.hasAlpha { plain.background = background ?? (format == .jpeg ? .white : nil) }
    return plain
  }

  private func crops(_ image: ImageDescription) -> Bool {
    guard fit == .cover, let width, let height else { return false }
    let own = image.uprightSize
    return width * own.height != height * own.width
  }
}

extension Variant.Color {
  fileprivate static let white = Variant.Color(red: 255, green: 255, blue: 255)
}

extension ImageDescription {
  /// In pixels, turned as the orientation says: 5 to 8 lie on their side.
  fileprivate var uprightSize: (width: Int, height: Int) {
    orientation > 4 ? (height, width) : (width, height)
  }
}
