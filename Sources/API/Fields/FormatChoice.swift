internal import Jobs

/// Chooses the format of a variant if the client names none.
struct FormatChoice {
  /// The formats that this build can write; at least one.
  let formats: Set<OutputFormat>
  /// The format of the image, if it can be written.
  let own: OutputFormat?
  /// Whether the variant may have transparent pixels, which JPEG can't store.
  let isTransparent: Bool
  /// See ``ImageFormat/isLossy``.
  private let isLossy: Bool

  init(_ formats: Set<OutputFormat>, for image: ImageDescription, isTransparent: Bool) {
    self.formats = formats
    own = OutputFormat(rawValue: image.format.rawValue).flatMap { formats.contains($0) ? $0 : nil }
    self.isTransparent = isTransparent
    isLossy = image.format.isLossy
  }

  /// The format if the client sends no `Accept`: the image's own, else PNG or JPEG.
  var plain: OutputFormat { own ?? order.first { $0 == .png || $0 == .jpeg } ?? order[0] }

  /// Returns the format with the highest weight in `Accept`. Among equal weights WebP wins, because it is small and
  /// quick to write. AVIF is smaller, but takes many times as long.
  ///
  /// WebP and AVIF are sent only to clients that name them, because clients without support for them also send
  /// `image/*`. A client that accepts none of the formats gets the plain one, which RFC 9110 section 12.5.1 allows.
  ///
  /// Old versions of Safari send `image/png,image/*;q=0.8`, also for photos. So a photo is sent as JPEG in place of
  /// PNG, unless `Accept` names JPEG.
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

  /// The formats in order of preference.
  private var order: [OutputFormat] {
    var order: [OutputFormat] = [.webp, .avif]
    if let own, !order.contains(own) { order.append(own) }
    order += isTransparent ? [.png, .jpeg] : [.jpeg, .png]
    return order.filter(formats.contains)
  }
}
