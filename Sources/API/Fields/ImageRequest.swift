internal import Jobs

/// The image or variant that a request asks for.
struct ImageRequest: Sendable {
  /// Size and format in the query; nil: the original.
  let variant: VariantQuery?
  /// The name of a variant that the job's submission defines.
  let name: String?
  /// The digest that the image must have; nil: any.
  let digest: ImageDigest?
  /// Whether a placeholder may be returned if the image is not available.
  let allowsPlaceholder: Bool

  /// Returns the variant of the job with this name.
  /// - Throws: `not_found` if the job has none.
  func named(of submission: Submission) throws(Problem) -> VariantRequest? {
    guard let name else { return nil }
    guard let request = submission.variants.first(where: { $0.name == name }) else {
      throw Problem(
        .notFound, "The job has no variant of this name. Its variants are in image.variants.")
    }
    return request
  }

  /// Reads and removes its parameters from a query.
  /// - Parameter isOfJob: whether the path names a job, which allows `sha256`.
  init(_ query: inout Query, _ routes: Routes, isOfJob: Bool = false) {
    name = query.value("variant")
    variant = VariantQuery(
      &query, formats: routes.service.outputFormats,
      longest: routes.configuration.limits.maxDimension)
    if name != nil, variant != nil {
      query.addMistake(
        "variant", "A named variant has its own size and format. Remove the other parameters.")
    }
    let hex = isOfJob ? query.value("sha256") : nil
    digest = hex.flatMap { ImageDigest(hex: $0) }
    if hex != nil, digest == nil { query.addMistake("sha256", "Must be 64 hexadecimal digits.") }
    allowsPlaceholder = query.bool("placeholder")
  }
}
