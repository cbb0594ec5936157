internal import HTTP
internal import HTTPTypes
internal import Jobs

/// A document that is the same for all clients and requests until the next version of the service.
package struct WebPage: Sendable {
  private let bytes: [UInt8]
  private let fields: HTTPFields
  private let entityTag: String

  /// - Parameters:
  ///   - bytes: the text in UTF-8.
  ///   - contentSecurityPolicy: the value of the header field.
  package init(
    _ bytes: [UInt8], contentType: String = "text/html; charset=utf-8",
    contentSecurityPolicy: String
  ) {
    self.bytes = bytes
    entityTag = ImageDigest(of: bytes).entityTag
    fields = [
      .contentType: contentType,
      // Revalidated at each visit, so that a new version of the service never runs with an old page.
      .cacheControl: "no-cache",
      .eTag: entityTag,
      .contentSecurityPolicy: contentSecurityPolicy,
      .xContentTypeOptions: "nosniff",
      .referrerPolicy: "no-referrer",
    ]
  }

  /// The page as the response with an error status.
  func answer(_ status: HTTPResponse.Status, with others: HTTPFields) -> Response {
    var fields = fields
    fields[.eTag] = nil
    fields[.cacheControl] = "no-store"
    fields.append(contentsOf: others)
    return Response(status: status, fields: fields, content: .bytes(bytes))
  }

  /// 200, or 304 if the client has the page.
  func answer(_ requestFields: HTTPFields) -> Response {
    let response = Response(status: .ok, fields: fields, content: .bytes(bytes))
    guard let field = requestFields[.ifNoneMatch], Conditions.names(entityTag, in: field) else {
      return response
    }
    return response.notModified
  }
}
