internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `GET|HEAD /jobs/{id}/preview`.
extension Routes {
  func preview(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    let job = try await current(exchange).job
    if let response = try await image(of: job, exchange) { return response }
    // Only the instance that loads the job has its preview.
    guard let preview = service.preview(of: job.id) else {
      return Response(status: .noContent, fields: [.cacheControl: "no-store"])
    }
    let fields: HTTPFields = [
      .contentType: preview.format.contentType,
      .cacheControl: "no-store",
      .imagePreview: "scan=\(preview.scan)",
      .xContentTypeOptions: "nosniff",
      .contentSecurityPolicy: Self.contentSecurityPolicy,
    ]
    let (bytes, share) = try await sendable(.memory(preview.bytes), exchange)
    return Response(
      status: .ok, fields: fields, content: bytes.content(0..<bytes.count), keeping: share)
  }
}
