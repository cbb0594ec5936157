internal import Jobs

/// Which picture a client asks for.
struct ImageRequest: Sendable {
  /// Nil: the origin's own.
  let variant: VariantQuery?
  /// One that the job wanted with its image, by its name.
  let name: String?
  /// That the image's own bytes must have; nil: any.
  let digest: ImageDigest?
  /// Whether another picture may stand in for one that is not there.
  let allowsPlaceholder: Bool

  /// Takes its members out of a query.
  /// - Parameter hasNames: whether the job is known, so that its variants can be asked for by their names, and its bytes by
  ///   their digest.
  init(_ query: inout Query, _ routes: Routes, hasNames: Bool = false) {
    name = hasNames ? query.one("variant") : nil
    variant = VariantQuery(
      &query, formats: routes.service.outputFormats,
      longest: routes.configuration.limits.maxDimension)
    if name != nil, variant != nil {
      query.wrong("variant", "It has its own size and format: no other members go with it.")
    }
    let hex = hasNames ? query.one("sha256") : nil
    digest = hex.flatMap { ImageDigest(hex: $0) }
    if hex != nil, digest == nil { query.wrong("sha256", "It has 64 hexadecimal digits.") }
    allowsPlaceholder = query.bool("placeholder")
  }
}
