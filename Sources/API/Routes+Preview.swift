internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `GET|HEAD /jobs/{id}/preview`.
extension Routes {
  func preview(_ exchange: Exchange) async throws(Problem) -> Response {
    try exchange.refuseQuery()
    let job = try await current(exchange).job
    if let response = try await image(of: job, exchange) { return response }
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
    return Response(status: .ok, fields: fields, content: .bytes(preview.bytes))
  }
}
