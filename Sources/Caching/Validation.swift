/// Asking the origin whether a stored response still holds (RFC 9111 section 4.3).
public enum Validation {
  /// `If-None-Match` and `If-Modified-Since`, as far as it has validators (section 4.3.1), each
  /// just as the origin wrote it; empty: it can't be validated.
  public static func conditions(for response: StoredResponse) -> [Field] {
    var conditions: [Field] = []
    if let tag = response.entityTag {
      conditions.append(Field(name: "If-None-Match", value: tag))
    }
    if response.lastModified != nil, let date = response.fields.first("last-modified") {
      conditions.append(Field(name: "If-Modified-Since", value: date))
    }
    return conditions
  }

  /// The stored response after a 304 (sections 3.2 and 4.3.4); nil when the 304 is about another
  /// one: it has another entity tag, or another `Last-Modified` where there are no tags.
  public static func freshen(
    _ stored: StoredResponse, with fields: [Field], requestTime: Int64, responseTime: Int64
  ) -> StoredResponse? {
    var updates = StoredResponse.kept(fields).filter { !unchanging.contains($0.name.lowercased()) }
    if updates.first("date") == nil {
      updates.append(Field(name: "Date", value: HTTPDate(milliseconds: responseTime).description))
    }
    var fresh = stored
    fresh.requestTime = requestTime
    fresh.responseTime = responseTime
    // An `Age` of back then says nothing about the age since this answer.
    let replaced = Set(updates.map { $0.name.lowercased() }).union(["age"])
    fresh.fields = stored.fields.filter { !replaced.contains($0.name.lowercased()) } + updates
    return isSame(stored, fields, now: responseTime) ? fresh : nil
  }

  /// What belongs to the stored bytes: `Content-Length`, and what was undone before they were kept
  /// (section 3.2).
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

  /// For weak comparison (RFC 9110 section 8.8.3.2): an origin that compresses on its way may
  /// weaken a tag.
  private static func opaque(_ tag: String) -> Substring {
    tag.hasPrefix("W/") ? tag.dropFirst(2) : tag[...]
  }
}
