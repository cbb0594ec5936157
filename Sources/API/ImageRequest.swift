internal import Jobs

/// Which picture a client asks for.
struct ImageRequest: Sendable {
  /// Nil: the origin's own.
  let variant: VariantQuery?
  /// One that the job wants with its image, by its name.
  let name: String?
  /// That the image's own bytes must have; nil: any.
  let digest: ImageDigest?
  /// Whether another picture may stand in for one that is not there.
  let allowsPlaceholder: Bool

  /// The variant of that name.
  /// - Throws: `not_found`.
  func named(of submission: Submission) throws(Problem) -> VariantRequest? {
    guard let name else { return nil }
    guard let request = submission.variants.first(where: { $0.name == name }) else {
      throw Problem(.notFound, "The job wanted no variant of that name.")
    }
    return request
  }

  /// Takes its members out of a query.
  /// - Parameter isOfJob: whether the job is known, so that its bytes can be asked for by their digest.
  init(_ query: inout Query, _ routes: Routes, isOfJob: Bool = false) {
    name = query.one("variant")
    variant = VariantQuery(
      &query, formats: routes.service.outputFormats,
      longest: routes.configuration.limits.maxDimension)
    if name != nil, variant != nil {
      query.wrong("variant", "It has its own size and format: no other members go with it.")
    }
    let hex = isOfJob ? query.one("sha256") : nil
    digest = hex.flatMap { ImageDigest(hex: $0) }
    if hex != nil, digest == nil { query.wrong("sha256", "It has 64 hexadecimal digits.") }
    allowsPlaceholder = query.bool("placeholder")
  }
}
