/// Asks the origin whether a stored response is still current (RFC 9111 section 4.3).
package enum Validation {
  /// The fields `If-None-Match` and `If-Modified-Since` for the validators of the response, unchanged (section 4.3.1). Empty
  /// if the response has no validator.
  package static func conditions(for response: StoredResponse) -> [Field] {
    var conditions: [Field] = []
    if let tag = response.entityTag {
      conditions.append(Field(name: "If-None-Match", value: tag))
    }
    if response.lastModified != nil, let date = response.fields.first("last-modified") {
      conditions.append(Field(name: "If-Modified-Since", value: date))
    }
    return conditions
  }

  /// Updates a stored response with the fields of a 304 response (sections 3.2 and 4.3.4).
  ///
  /// - Returns: Nil if the 304 does not match the stored response: it has another entity tag, or another `Last-Modified` if
  ///   there are no tags.
  package static func freshen(
    _ stored: StoredResponse, with fields: [Field], requestTime: Int64, responseTime: Int64
  ) -> StoredResponse? {
    var updates = StoredResponse.kept(fields).filter { !unchanging.contains($0.name.lowercased()) }
    if updates.first("date") == nil {
      updates.append(Field(name: "Date", value: HTTPDate(milliseconds: responseTime).description))
    }
    var fresh = stored
    fresh.requestTime = requestTime
    fresh.responseTime = responseTime
    // The stored `Age` does not apply to the new response time.
    let replaced = Set(updates.map { $0.name.lowercased() }).union(["age"])
    fresh.fields = stored.fields.filter { !replaced.contains($0.name.lowercased()) } + updates
    return isSame(stored, fields, now: responseTime) ? fresh : nil
  }

  /// Fields that describe the stored bytes, so a 304 does not change them (section 3.2). Codings were removed before the
  /// bytes were stored.
  private static let unchanging: Set = ["content-encoding", "content-length", "content-range"]

  private static func isSame(_ stored: StoredResponse, _ fields: [Field], now: Int64) -> Bool {
    if let tag = fields.first("etag") {
      guard let own = stored.entityTag else { return tag.hasPrefix("W/") }
      return opaque(tag) == opaque(own)
    }
    guard stored.entityTag == nil, let own = stored.lastModified,
      let date = fields.first("last-modified").flatMap({ HTTPDate($0, now: now) })
    else { return true }
    return date.milliseconds == own
  }

  /// The tag without `W/`, for weak comparison (RFC 9110 section 8.8.3.2). An origin that compresses responses may weaken
  /// its tags.
  private static func opaque(_ tag: String) -> Substring {
    tag.hasPrefix("W/") ? tag.dropFirst(2) : tag[...]
  }
}
