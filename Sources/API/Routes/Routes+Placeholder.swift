internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Placeholder images (`placeholder=true`) for images that are not available.
extension Routes {
  func placeholder(
    _ placeholder: Placeholder, for job: Job, _ wish: VariantQuery?, _ exchange: AuthorizedRequest
  ) async throws(Problem) -> Response {
    let image = service.placeholderImage(for: placeholder)
    // Without options for a variant, the image is sent as it is.
    guard let wish else {
      // All responses share these bytes.
      return answer(.memory(image.bytes), image.description.format.contentType, for: job)
    }
    let variant = wish.variant(
      of: image.description, Accept(exchange.fields[.accept]), formats: service.outputFormats)
    guard let rendition = service.rendition(of: image, as: variant) else {
      throw Problem(JobsError.unrenderable(.unsupportedFormat(name: nil)))
    }
    try check(rendition, wish)
    let rendered = try await callEngine { () throws(JobsError) in
      try await service.openPlaceholder(rendition, for: job)
    }
    let (content, share) = try await sendable(rendered.bytes, exchange)
    var response = answer(content, rendition.variant.format.contentType, for: job)
    response.retained = share ?? rendered.share
    if wish.isAuto { response.fields[.vary] = "Accept" }
    return response
  }

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
