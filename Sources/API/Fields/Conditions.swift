internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Conditional requests (RFC 9110 section 13).
enum Conditions {
  /// Whether an `If-None-Match` names the current representation, by weak comparison.
  static func names(_ entityTag: String, in field: String) -> Bool {
    if field == entityTag { return true }
    if field == "*" { return true }
    return tags(field).contains { $0.tag == entityTag[...] }
  }

  /// Whether the request fails with 412: `If-Match` does not match, or without it `If-Unmodified-Since` does not hold
  /// (section 13.2.2, steps 1 and 2).
  static func fail(_ fields: HTTPFields, _ entityTag: String, modifiedAt: Timestamp) -> Bool {
    if let field = fields[.ifMatch] { return !matches(entityTag, field) }
    return hasChanged(since: fields[.ifUnmodifiedSince], modifiedAt) == true
  }

  /// Returns nil if the field is missing or is not a date.
  private static func hasChanged(since field: String?, _ modifiedAt: Timestamp) -> Bool? {
    guard let field, let since = Timestamp(httpDate: field, now: modifiedAt) else { return nil }
    // HTTP dates have whole seconds.
    return modifiedAt.milliseconds / 1000 > since.milliseconds / 1000
  }

  /// Whether an `If-Match` names the current representation.
  static func matches(_ entityTag: String, _ field: String) -> Bool {
    field == "*" || strongTags(field).contains(entityTag[...])
  }

  /// The tags of an `If-Match` field that a strong comparison can match. Weak tags never match.
  static func strongTags(_ field: String) -> [Substring] {
    tags(field).filter { !$0.isWeak }.map(\.tag)
  }

  /// Whether the client's copy is current, by `If-None-Match`, or without it by `If-Modified-Since`.
  static func isCurrent(_ fields: HTTPFields, _ entityTag: String, modifiedAt: Timestamp) -> Bool {
    if let field = fields[.ifNoneMatch] { return names(entityTag, in: field) }
    return hasChanged(since: fields[.ifModifiedSince], modifiedAt) == false
  }

  /// Whether a `Range` may be answered with a part: there is no `If-Range`, or it names the current representation by
  /// strong comparison.
  /// - Parameter modifiedAt: nil if the bytes can change without a new date. A date is a strong validator only from one
  ///   second after it: until then the bytes may change again within the same second (RFC 9110 section 8.8.2.2).
  static func rangeHolds(
    _ fields: HTTPFields, _ entityTag: String, modifiedAt: Timestamp?, at now: Timestamp
  ) -> Bool {
    guard let field = fields[.ifRange] else { return true }
    if field == entityTag { return true }
    guard let modifiedAt, modifiedAt + .seconds(1) <= now else { return false }
    return field == modifiedAt.httpDate
  }

  /// Returns the opaque tags of a field, including their quotes. A tag may contain a comma, but no quote.
  private static func tags(_ field: String) -> [(tag: Substring, isWeak: Bool)] {
    var found: [(tag: Substring, isWeak: Bool)] = []
    var rest = field[...]
    while let open = rest.firstIndex(of: "\"") {
      let content = rest[rest.index(after: open)...]
      guard let close = content.firstIndex(of: "\"") else { break }
      found.append((rest[open...close], rest[..<open].hasSuffix("W/")))
      rest = rest[rest.index(after: close)...]
    }
    return found
  }
}

extension Response {
  /// The 304 that replaces this 200 if the client's copy is current.
  var notModified: Response {
    var response = self
    response.status = .notModified
    response.fields[.contentType] = nil
    if case .bytes(let bytes) = content { response.content = .omitted(count: bytes.count) }
    return response
  }
}

/// The requested `Range` (RFC 9110 section 14).
enum ByteRange: Equatable {
  /// The complete content: the field is missing, malformed, or has several ranges, which the service ignores.
  case whole
  /// A range within the content.
  case part(Range<Int>)
  /// The range is outside the content: 416.
  case unsatisfiable

  /// - Parameter count: the length of the content in bytes.
  init(_ field: String?, count: Int) {
    guard let field, field.prefix(6).lowercased() == "bytes=" else {
      self = .whole; return
    }
    let ends = field.dropFirst(6).split(separator: "-", omittingEmptySubsequences: false)
    guard ends.count == 2, let first = Self.number(ends[0]), let last = Self.number(ends[1]) else {
      self = .whole
      return
    }
    switch (first, last) {
    case (nil, nil): self = .whole
    case (nil, let length?):
      self = length == 0 || count == 0 ? .unsatisfiable : .part(max(0, count - length)..<count)
    case (let first?, let last):
      if let last, last < first { self = .whole; return }
      self = first < count ? .part(first..<min(count - 1, last ?? .max) + 1) : .unsatisfiable
    }
  }

  /// Returns `.some(nil)` for an empty text, nil for a malformed one. Numbers that are too large become `Int.max`.
  private static func number(_ text: Substring) -> Int?? {
    guard text.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }) else { return nil }
    return text.isEmpty ? .some(nil) : .some(Int(text) ?? .max)
  }
}
