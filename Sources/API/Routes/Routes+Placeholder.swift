internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Placeholder images (`placeholder=true`) for images that are not available.
extension Routes {
  func placeholder(
    _ placeholder: Placeholder, for job: Job, _ wish: VariantQuery?, _ exchange: AuthorizedRequest
  ) async throws(Problem) -> Response {
    let picture = service.placeholderImage(for: placeholder)
    // Without options for a variant, the operator's image is sent as it is.
    if wish == nil, let picture {
      // All responses share these bytes.
      return answer(.memory(picture.bytes), picture.description.format.contentType, for: job)
    }
    let accept = Accept(exchange.fields[.accept])
    let wish = wish ?? VariantQuery()
    let variant = wish.variant(
      of: picture?.description ?? Self.drawn, accept, formats: service.outputFormats)
    guard let rendition = service.rendition(of: placeholder, as: variant) else {
      throw Problem(JobsError.unrenderable(.unsupportedFormat(name: nil)))
    }
    // A built-in placeholder is never too large.
    if picture != nil { try check(rendition, wish) }
    let rendered = try await callEngine { () throws(JobsError) in
      try await service.openPlaceholder(rendition, for: job)
    }
    let (content, share) = try await sendable(rendered.bytes, exchange)
    var response = answer(content, rendition.variant.format.contentType, for: job)
    response.retained = share ?? rendered.share
    if wish.format == .auto { response.fields[.vary] = "Accept" }
    return response
  }

  /// PNG, because a drawing is small in that format.
  private static let drawn = ImageDescription(format: .png, width: 1, height: 1)

  private func answer(_ bytes: StoredBytes, _ contentType: String, for job: Job) -> Response {
    // The job succeeded, but its image is no longer stored.
    let phase = job.phase == .success ? "gone" : job.phase.rawValue
    let fields: HTTPFields = [
      .contentType: contentType,
      .cacheControl: "no-store",
      .imagePhase: phase,
      .xContentTypeOptions: "nosniff",
      .contentSecurityPolicy: Self.contentSecurityPolicy,
    ]
    return Response(status: .ok, fields: fields, content: bytes.content(0..<bytes.count))
  }
}
