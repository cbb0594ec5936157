internal import Jobs

/// Which format a variant is written in where the client names none.
struct FormatChoice {
  /// Those that can be written: at least one.
  let formats: Set<OutputFormat>
  /// The image's own.
  let own: OutputFormat?
  /// Whether what comes out can be transparent, which JPEG can't hold.
  let isTransparent: Bool
  /// Whether the image's own format loses detail, so that a PNG of it is many times larger and no better.
  private let isLossy: Bool

  init(_ formats: Set<OutputFormat>, for image: ImageDescription, isTransparent: Bool) {
    self.formats = formats
    own = OutputFormat(rawValue: image.format.rawValue).flatMap { formats.contains($0) ? $0 : nil }
    self.isTransparent = isTransparent
    isLossy = [.jpeg, .webp, .avif, .heic, .jxl].contains(image.format)
  }

  /// Without a word from the client: the image's own, else PNG or JPEG.
  var plain: OutputFormat { own ?? order.first { $0 == .png || $0 == .jpeg } ?? order[0] }

  /// The format that the client likes best. Among equally welcome ones WebP, which is small and quickly made; AVIF is
  /// smaller, but takes many times as long.
  ///
  /// WebP and AVIF are only sent to clients that name them: `image/*` is also said by such as never heard of them. A
  /// client that takes none of the formats gets the plain one, which RFC 9110 section 12.5.1 leaves to us.
  ///
  /// `image/png,image/*;q=0.8`, which Safari sent until it knew WebP, doesn't say that a photo is wanted as PNG: JPEG is
  /// sent unless `Accept` names it as less welcome.
  func best(_ accept: Accept) -> OutputFormat {
    if accept.isEmpty { return plain }
    let candidates = order.filter { format in
      format == own || format == .png || format == .jpeg || accept.names(format.contentType)
    }
    let welcome = candidates.map { ($0, accept.weight(of: $0.contentType)) }.filter { $0.1 > 0 }
    let kept = welcome.filter { $0.0 != .jpeg || !isTransparent }
    let choices = kept.isEmpty ? welcome : kept
    let best = choices.map(\.1).max()
    let chosen = choices.first { $0.1 == best }?.0 ?? plain
    let hasJPEG = choices.contains { $0.0 == .jpeg } && !accept.names(OutputFormat.jpeg.contentType)
    return chosen == .png && isLossy && !isTransparent && hasJPEG ? .jpeg : chosen
  }

  /// Best first.
  private var order: [OutputFormat] {
    var order: [OutputFormat] = [.webp, .avif]
    if let own, !order.contains(own) { order.append(own) }
    order += isTransparent ? [.png, .jpeg] : [.jpeg, .png]
    return order.filter(formats.contains)
  }
}
