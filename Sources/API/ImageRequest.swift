/// Which picture a client asks for.
struct ImageRequest: Sendable {
  /// Nil: the origin's own.
  let variant: VariantQuery?
  /// One that the job wanted with its image, by its name.
  let name: String?
  /// Whether another picture may stand in for one that is not there.
  let allowsPlaceholder: Bool

  /// Takes its members out of a query.
  /// - Parameter hasNames: whether a variant may be asked for by its name.
  init(_ query: inout Query, _ routes: Routes, hasNames: Bool = false) {
    name = hasNames ? query.one("variant") : nil
    variant = VariantQuery(
      &query, formats: routes.service.outputFormats,
      longest: routes.configuration.limits.maxDimension)
    if name != nil, variant != nil {
      query.wrong("variant", "It has its own size and format: no other members go with it.")
    }
    allowsPlaceholder = query.bool("placeholder")
  }
}
