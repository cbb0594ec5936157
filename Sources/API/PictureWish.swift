/// Which picture a client asks for.
struct PictureWish {
  /// Nil: the origin's own.
  let variant: VariantQuery?
  /// Whether another picture may stand in for one that is not there.
  let allowsPlaceholder: Bool

  /// Takes its members out of a query.
  init(_ query: inout Query, _ routes: Routes) {
    variant = VariantQuery(
      &query, formats: routes.service.outputFormats,
      longest: routes.configuration.limits.maxDimension)
    allowsPlaceholder = query.bool("placeholder")
  }
}
