internal import HTTP
internal import HTTPTypes
internal import Jobs

/// The conditions of RFC 9110 section 13.
enum Conditions {
  /// Whether an `If-None-Match` names the current representation, by weak comparison.
  static func names(_ entityTag: String, in field: String) -> Bool {
    if field == entityTag { return true }
    if field == "*" { return true }
    return tags(field).contains { $0.tag == entityTag[...] }
  }

  /// Whether `If-Match`, or without it `If-Unmodified-Since`, does not hold: 412 (section 13.2.2, steps 1 and 2).
  static func fail(_ fields: HTTPFields, _ entityTag: String, modifiedAt: Timestamp) -> Bool {
    if let field = fields[.ifMatch] { return !matches(entityTag, field) }
    return hasChanged(since: fields[.ifUnmodifiedSince], modifiedAt) == true
  }

  /// Nil where there is no field, or one that is no date.
  private static func hasChanged(since field: String?, _ modifiedAt: Timestamp) -> Bool? {
    guard let field, let since = Timestamp(httpDate: field, now: modifiedAt) else { return nil }
    // A date has no fraction of a second.
    return modifiedAt.milliseconds / 1000 > since.milliseconds / 1000
  }

  /// Whether an `If-Match` names the current representation.
  static func matches(_ entityTag: String, _ field: String) -> Bool {
    field == "*" || strongTags(field).contains(entityTag[...])
  }

  /// What an `If-Match` names: by strong comparison a weak tag is none.
  static func strongTags(_ field: String) -> [Substring] {
    tags(field).filter { !$0.isWeak }.map(\.tag)
  }

  /// Whether the client's copy is still the current one: `If-None-Match`, or without it `If-Modified-Since`.
  static func isCurrent(_ fields: HTTPFields, _ entityTag: String, modifiedAt: Timestamp) -> Bool {
    if let field = fields[.ifNoneMatch] { return names(entityTag, in: field) }
    return hasChanged(since: fields[.ifModifiedSince], modifiedAt) == false
  }

  /// Whether a `Range` may be answered with a part: no `If-Range`, or one that names the current
  /// representation by strong comparison.
  /// - Parameter modifiedAt: nil where bytes of the same date may be others. A date names them a second after it at the
  ///   earliest (RFC 9110 section 8.8.2.2): until then they may change again within it.
  static func rangeHolds(
    _ fields: HTTPFields, _ entityTag: String, modifiedAt: Timestamp?, at now: Timestamp
  ) -> Bool {
    guard let field = fields[.ifRange] else { return true }
    if field == entityTag { return true }
    guard let modifiedAt, modifiedAt + .seconds(1) <= now else { return false }
    return field == modifiedAt.httpDate
  }

  /// The opaque tags of a list, quotes included. A tag may hold a comma, but no quote.
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
  /// The 304 for a client that has what this 200 would send.
  var notModified: Response {
    var response = self
    response.status = .notModified
    response.fields[.contentType] = nil
    if case .bytes(let bytes) = content { response.content = .omitted(count: bytes.count) }
    return response
  }
}

/// What a `Range` field asks for (RFC 9110 section 14).
enum ByteRange: Equatable {
  /// Everything: there is no field, one that is no range of bytes, or one of several parts, which may be ignored.
  case whole
  /// These bytes, which are there.
  case part(Range<Int>)
  /// None that are there: 416.
  case unsatisfiable

  /// - Parameter count: how many bytes there are.
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

  /// `.some(nil)` for none; a number too large to be one is as good as the largest.
  private static func number(_ text: Substring) -> Int?? {
    guard text.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }) else { return nil }
    return text.isEmpty ? .some(nil) : .some(Int(text) ?? .max)
  }
}
