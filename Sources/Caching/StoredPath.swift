/// A redirect that led to a stored response (RFC 9110 section 15.4).
package struct StoredRedirect: Sendable, Equatable, Codable {
  /// 301, 302, 303, 307 or 308.
  package let status: Int
  /// The redirect with only the fields that control its caching.
  package let response: StoredResponse
  /// Whether the request for it carried the client's fields. A redirect to another origin drops them.
  package let hadFields: Bool

  /// - Parameters:
  ///   - client: the client's fields, whether or not the request carried them.
  ///   - hadFields: whether the request carried the client's fields.
  ///   - fields: the header fields of the redirect.
  ///   - requestTime: when the request was sent, in milliseconds since the Unix epoch.
  ///   - responseTime: when the response's header section was received, in milliseconds since the Unix epoch.
  package init(
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

  // Other fields are dropped, because a cache entry's record is read for each job that it may answer. An origin may send
  // 64 KiB of fields per redirect.
  private static let kept: Set = [
    "age", "cache-control", "date", "expires", "last-modified", "vary",
  ]

  fileprivate func matches(_ client: [Field]) -> Bool { response.matches(hadFields ? client : []) }
}

/// The redirects that led to a stored response. The response may be used only if each redirect may be used too.
package struct StoredPath: Sendable, Equatable, Codable {
  /// The redirects, first to last.
  package var redirects: [StoredRedirect]
  /// Whether the last request carried the client's fields.
  package var hadFields: Bool

  package init(redirects: [StoredRedirect], hadFields: Bool) {
    self.redirects = redirects
    self.hadFields = hadFields
  }

  /// The path without redirects.
  package static let direct = StoredPath(redirects: [], hadFields: true)

  /// Whether a shared cache may store the response and the redirects that led to it.
  /// - Parameters:
  ///   - status: the status of the response.
  ///   - client: the client's fields.
  package func permitsStoring(
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

  /// Whether each response on the path declares itself shareable, see ``Storing/isShareable(_:)``.
  package func isShareable(_ response: StoredResponse) -> Bool {
    redirects.allSatisfy { Storing.isShareable($0.response.fields) }
      && Storing.isShareable(response.fields)
  }

  /// Whether each response on the path has `public`, see ``Storing/isPublic(_:)``.
  package func isPublic(_ response: StoredResponse) -> Bool {
    redirects.allSatisfy { Storing.isPublic($0.response.fields) }
      && Storing.isPublic(response.fields)
  }

  /// Whether any request on the path carried the client's fields.
  package var everHadFields: Bool { hadFields || redirects.contains(where: \.hadFields) }

  /// Whether the response and all redirects match the request (RFC 9111 section 4.1).
  package func matches(_ response: StoredResponse, client: [Field]) -> Bool {
    redirects.allSatisfy { $0.matches(client) } && response.matches(hadFields ? client : [])
  }

  /// Identifies a stored response among those for the same URL. A response replaces a stored one with an equal selector.
  package func selector(of response: StoredResponse) -> String {
    let ways = redirects.enumerated().filter { !$0.element.response.selector.isEmpty }
    guard !ways.isEmpty else { return response.selector }
    return ways.map { "\($0.offset)\n\($0.element.response.selector)\n" }.joined()
      + "\n" + response.selector
  }
}

extension Freshness {
  /// Evaluates a response together with its redirects. It is usable only if all of them are. `age` and `lifetime` are those
  /// of the response.
  ///
  /// `assigned` can only shorten the operator's `fallback` for redirects that do not state a lifetime.
  package init(
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
