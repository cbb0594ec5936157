internal import HTTP
internal import HTTPTypes
internal import Jobs

/// A page for people, the same for everyone until the next version of this service.
public struct WebPage: Sendable {
  private let bytes: [UInt8]
  private let fields: HTTPFields
  private let entityTag: String

  /// - Parameters:
  ///   - bytes: HTML, UTF-8.
  ///   - contentSecurityPolicy: what a browser is to hold it to.
  public init(_ bytes: [UInt8], contentSecurityPolicy: String) {
    self.bytes = bytes
    entityTag = ImageDigest(of: bytes).entityTag
    fields = [
      .contentType: "text/html; charset=utf-8",
      // Kept, and asked about at each visit: nobody uses a new service with an old page.
      .cacheControl: "no-cache",
      .eTag: entityTag,
      .contentSecurityPolicy: contentSecurityPolicy,
      .xContentTypeOptions: "nosniff",
      .referrerPolicy: "no-referrer",
    ]
  }

  /// The page as the answer of a status that is no success.
  func answer(_ status: HTTPResponse.Status, with others: HTTPFields) -> Response {
    var fields = fields
    fields[.eTag] = nil
    fields[.cacheControl] = "no-store"
    fields.append(contentsOf: others)
    return Response(status: status, fields: fields, content: .bytes(bytes))
  }

  /// 200, or 304 for whoever has it.
  func answer(_ requestFields: HTTPFields) -> Response {
    let response = Response(status: .ok, fields: fields, content: .bytes(bytes))
    guard let field = requestFields[.ifNoneMatch], Conditions.names(entityTag, in: field) else {
      return response
    }
    return response.notModified
  }
}
