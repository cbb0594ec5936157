/// A response that sent a request elsewhere, on the way to one that is stored (RFC 9110 section 15.4).
public struct StoredRedirect: Sendable, Equatable, Codable {
  /// 301, 302, 303, 307 or 308.
  public let status: Int
  /// What says how long it may be used and for whom; its other fields are not kept.
  public let response: StoredResponse
  /// Whether its request had the client's own fields: a redirect to another origin drops them.
  public let hadFields: Bool

  /// - Parameters:
  ///   - client: the client's own fields, whether or not the request had them.
  ///   - requestTime: when the request was sent, in milliseconds since 1970.
  ///   - responseTime: when the response's fields had come, likewise.
  public init(
    status: Int, to client: [Field], hadFields: Bool, fields: [Field], requestTime: Int64,
    responseTime: Int64
  ) {
    self.status = status
    self.hadFields = hadFields
    response = StoredResponse(
      to: hadFields ? client : [],
      fields: fields.filter { Self.kept.contains($0.name.lowercased()) },
      requestTime: requestTime, responseTime: responseTime, assignedLifetime: nil)
  }

  // An entry's record is read for each job that it may answer, and an origin may say 64 KiB a hop.
  private static let kept: Set = [
    "age", "cache-control", "date", "expires", "last-modified", "vary",
  ]

  fileprivate func matches(_ client: [Field]) -> Bool { response.matches(hadFields ? client : []) }
}

/// How a stored response was come by. It may answer a request only where each response on the way
/// to it may.
public struct StoredPath: Sendable, Equatable, Codable {
  /// In their order.
  public var redirects: [StoredRedirect]
  /// Whether the last request had the client's own fields.
  public var hadFields: Bool

  /// A path.
  public init(redirects: [StoredRedirect], hadFields: Bool) {
    self.redirects = redirects
    self.hadFields = hadFields
  }

  /// The response of the URL that was asked for.
  public static let direct = StoredPath(redirects: [], hadFields: true)

  /// Whether a shared cache may store what it led to.
  /// - Parameters:
  ///   - client: the client's own fields.
  ///   - status: the last response's.
  public func permitsStoring(
    _ response: StoredResponse, status: Int, client: [Field]
  ) -> Bool {
    redirects.allSatisfy { redirect in
      Storing.permits(
        redirect: redirect.response.fields, status: redirect.status,
        to: redirect.hadFields ? client : [])
    }
      && Storing.permits(
        request: hadFields ? client : [], response: response.fields, status: status)
  }

  /// Whether each response says itself that it is for everyone.
  public func isForAll(_ response: StoredResponse) -> Bool {
    redirects.allSatisfy { Storing.isForAll($0.response.fields) }
      && Storing.isForAll(response.fields)
  }

  /// Whether each response is public by its own word, fresh or stale.
  public func isPublic(_ response: StoredResponse) -> Bool {
    redirects.allSatisfy { Storing.isPublic($0.response.fields) }
      && Storing.isPublic(response.fields)
  }

  /// Whether any request on the way had the client's own fields.
  public var everHadFields: Bool { hadFields || redirects.contains(where: \.hadFields) }

  /// Whether all of it may answer that request (RFC 9111 section 4.1).
  public func matches(_ response: StoredResponse, client: [Field]) -> Bool {
    redirects.allSatisfy { $0.matches(client) } && response.matches(hadFields ? client : [])
  }

  /// Tells apart what is stored for one URL: equal where one takes the other's place.
  public func selector(of response: StoredResponse) -> String {
    let ways = redirects.enumerated().filter { !$0.element.response.selector.isEmpty }
    guard !ways.isEmpty else { return response.selector }
    return ways.map { "\($0.offset)\n\($0.element.response.selector)\n" }.joined()
      + "\n" + response.selector
  }
}

extension Freshness {
  /// Of a response that redirects may have led to: it is usable where all of them are. Its age and
  /// lifetime are the response's own.
  ///
  /// What the reader assigns to silent responses may only narrow what the operator gives to silent
  /// redirects.
  public init(
    of response: StoredResponse, over path: StoredPath, at now: Int64, assigned: Int?,
    fallback: Int?
  ) {
    self.init(of: response, at: now, assigned: assigned, fallback: fallback)
    let narrowed = fallback.map { min($0, assigned ?? $0) }
    for redirect in path.redirects {
      narrow(to: Freshness(of: redirect.response, at: now, assigned: nil, fallback: narrowed))
    }
  }

  private mutating func narrow(to other: Freshness) {
    permitsStale = permitsStale && other.permitsStale
    permitsStaleWhileRevalidating =
      (isFresh || permitsStaleWhileRevalidating)
      && (other.isFresh || other.permitsStaleWhileRevalidating)
    permitsStaleIfError =
      (isFresh || permitsStaleIfError) && (other.isFresh || other.permitsStaleIfError)
    needsValidation = needsValidation || other.needsValidation
    isFresh = isFresh && other.isFresh
    isImmutable = isImmutable && other.isImmutable
    if let mine = freshUntil, let others = other.freshUntil {
      freshUntil = min(mine, others)
    } else {
      freshUntil = nil
    }
  }
}
