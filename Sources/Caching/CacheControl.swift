/// The `Cache-Control` directives of a request or a response (RFC 9111 section 5.2). Unknown directives are ignored.
package struct CacheControl: Sendable, Equatable {
  /// The known directives, from RFC 9111, RFC 5861 and RFC 8246.
  package enum Directive: String, Sendable, CaseIterable {
    case maxAge = "max-age"
    case sharedMaxAge = "s-maxage"
    case maxStale = "max-stale"
    case minFresh = "min-fresh"
    case noCache = "no-cache"
    case noStore = "no-store"
    case noTransform = "no-transform"
    case onlyIfCached = "only-if-cached"
    case mustRevalidate = "must-revalidate"
    case mustUnderstand = "must-understand"
    case proxyRevalidate = "proxy-revalidate"
    case `private`
    case `public`
    case staleWhileRevalidate = "stale-while-revalidate"
    case staleIfError = "stale-if-error"
    case immutable
  }

  /// The arguments of each directive, one per occurrence, unparsed; nil for an occurrence without an argument.
  private var arguments: [Directive: [String?]] = [:]

  /// Parses the directives of all `Cache-Control` lines.
  package init(_ fields: [Field]) {
    for member in fields.members("cache-control") {
      let parts = member.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      // The grammar does not allow blanks around `=`. The directive is used nevertheless, so that `no-store =1` forbids
      // storing.
      guard let name = parts.first.map({ FieldList.trimmed($0).lowercased() }),
        let directive = Directive(rawValue: name)
      else { continue }
      let isSpaced = parts[0].utf8.count != name.utf8.count
      let argument = parts.count == 2 ? (isSpaced ? " " : "") + parts[1] : nil
      arguments[directive, default: []].append(argument)
    }
  }

  /// Whether the directive is present, with or without an argument.
  package func has(_ directive: Directive) -> Bool { arguments[directive] != nil }

  /// The directive's argument in seconds, quoted or not, at most 2^31; nil if the directive is absent.
  ///
  /// If the directive occurs several times, the first is used. An argument that is not a number counts as 0, because section
  /// 4.2.1 treats such responses as stale.
  package func seconds(_ directive: Directive) -> Int? {
    guard let first = arguments[directive]?.first else { return nil }
    return first.flatMap { DeltaSeconds.read(FieldList.unquoted($0) ?? $0) } ?? 0
  }

  /// Whether a `no-cache` or `private` applies to the whole response and not only to listed fields.
  package func concernsAll(_ directive: Directive) -> Bool {
    arguments[directive]?.contains { Self.names($0).isEmpty } ?? false
  }

  /// The names of the fields, in lower case, that a `no-cache` or `private` lists (sections 5.2.2.4 and 5.2.2.7).
  package func fieldNames(_ directive: Directive) -> Set<String> {
    Set(arguments[directive]?.flatMap(Self.names) ?? [])
  }

  /// The field names in a quoted string. Any other argument counts as no list, so the directive applies to everything.
  private static func names(_ argument: String?) -> [String] {
    argument.flatMap(FieldList.unquoted).map { FieldList.members($0).map { $0.lowercased() } } ?? []
  }
}

/// A comma-separated list in a header field's line (RFC 9110 section 5.6.1).
enum FieldList {
  /// The members of the list, without surrounding whitespace and without empty members.
  ///
  /// A comma in a quoted string does not separate members. A quote that is never closed is an ordinary character, so that
  /// it can't hide the members after it.
  static func members(_ line: String) -> [Substring] {
    var found: [Substring] = []
    var start = line.startIndex
    var index = start
    var quotesClose = true
    while index < line.endIndex {
      if line.utf8[index] == UInt8(ascii: ",") {
        found.append(trimmed(line[start..<index]))
        start = line.utf8.index(after: index)
      } else if quotesClose, line.utf8[index] == UInt8(ascii: "\"") {
        if let close = closingQuote(of: index, in: line) {
          index = close
        } else {
          quotesClose = false
        }
      }
      index = line.utf8.index(after: index)
    }
    found.append(trimmed(line[start...]))
    return found.filter { !$0.isEmpty }
  }

  private static func closingQuote(of open: String.Index, in line: String) -> String.Index? {
    var isEscaped = false
    var index = line.utf8.index(after: open)
    while index < line.endIndex {
      if isEscaped {
        isEscaped = false
      } else if line.utf8[index] == UInt8(ascii: "\\") {
        isEscaped = true
      } else if line.utf8[index] == UInt8(ascii: "\"") {
        return index
      }
      index = line.utf8.index(after: index)
    }
    return nil
  }

  /// The text without surrounding spaces and tabs.
  static func trimmed(_ text: Substring) -> Substring {
    let isBlank = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
    var utf8 = text.utf8.drop(while: isBlank)
    while let last = utf8.last, isBlank(last) { utf8 = utf8.dropLast() }
    return Substring(utf8)
  }

  /// The content of a quoted string (RFC 9110 section 5.6.4); nil if the text is not a quoted string.
  static func unquoted(_ text: String) -> String? {
    guard text.utf8.count >= 2, text.hasPrefix("\""), text.hasSuffix("\"") else { return nil }
    var said: [UInt8] = []
    var isEscaped = false
    for byte in text.utf8.dropFirst().dropLast() {
      if byte == UInt8(ascii: "\\"), !isEscaped {
        isEscaped = true
      } else {
        said.append(byte)
        isEscaped = false
      }
    }
    return String(decoding: said, as: UTF8.self)
  }
}

/// A number of seconds in a header field (RFC 9111 section 1.2.2).
enum DeltaSeconds {
  /// The largest value, 2^31. Larger numbers are reduced to it.
  static let maximum = 2_147_483_648

  /// Parses digits; nil for any other text.
  static func read(_ text: some StringProtocol) -> Int? {
    guard !text.isEmpty, text.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 })
    else { return nil }
    return saturated(Int(text) ?? maximum)
  }

  /// The number limited to 0…2^31.
  static func saturated(_ seconds: Int) -> Int { min(max(seconds, 0), maximum) }
}

// Caching: the rules of HTTP caching (RFC 9111) as pure functions.
//
// Input: header fields, statuses and times. Output: decisions. It has no clock and does no I/O, and works on any thread.
// The files, in reading order:
//
// 1. `Storing`: may a response be stored? Also its stored form, and the redirects before it.
// 2. `Vary`: which stored response matches a request?
// 3. `Freshness`: may a stored response be used now? If not, how to ask the origin whether it is still current.
// 4. `CacheControl`, `HTTPDate`: parsing.

/// A header field of a request or a response.
package struct Field: Sendable, Hashable, Codable {
  /// The name as received. Comparisons ignore case.
  package var name: String
  package var value: String

  package init(name: String, value: String) {
    self.name = name
    self.value = value
  }

  /// - Parameter name: in lower case.
  func isNamed(_ name: String) -> Bool {
    self.name.utf8.count == name.utf8.count && self.name.lowercased() == name
  }
}

extension [Field] {
  /// The values of all lines with this name, in order.
  /// - Parameter name: in lower case.
  func values(_ name: String) -> [String] {
    filter { $0.isNamed(name) }.map(\.value)
  }

  /// The value of the first line with this name; nil if there is none.
  /// - Parameter name: in lower case.
  func first(_ name: String) -> String? {
    first { $0.isNamed(name) }?.value
  }

  /// The members of a list field, from all its lines.
  /// - Parameter name: in lower case.
  func members(_ name: String) -> [Substring] {
    values(name).flatMap(FieldList.members)
  }
}

/// The age of a stored response at a given time, and how it may be used (RFC 9111 section 4.2).
package struct Freshness: Sendable, Equatable {
  /// How long the response is fresh: 0…2^31 seconds.
  package var lifetime: Int
  /// The response's age: 0…2^31 seconds (section 4.2.3).
  package var age: Int
  /// Whether the response may be used without validation: younger than its lifetime, and without `no-cache`.
  package var isFresh: Bool
  /// When the response becomes stale, in milliseconds since the Unix epoch; nil if it always needs validation.
  package var freshUntil: Int64?
  /// Whether the response must be validated before each use (`no-cache`).
  package var needsValidation: Bool
  /// Whether the stale response may be used if the origin can't be reached (section 4.2.4). False with `must-revalidate`,
  /// `proxy-revalidate`, `s-maxage` or `no-cache`.
  package var permitsStale: Bool
  /// Whether the stale response may be used now while it is validated (RFC 5861 section 3).
  package var permitsStaleWhileRevalidating: Bool
  /// Whether the stale response may be used now after an error (RFC 5861 section 4).
  package var permitsStaleIfError: Bool
  /// Whether the response does not change while it is fresh (RFC 8246).
  package var isImmutable: Bool

  /// Evaluates a response. If it does not state its lifetime, `assigned` applies, then the lifetime stored with it, then
  /// `fallback`.
  ///
  /// - Parameters:
  ///   - now: milliseconds since the Unix epoch.
  ///   - assigned: the lifetime in seconds that the requesting job assigns.
  ///   - fallback: the lifetime in seconds that the operator assigns; nil for section 4.2.2's heuristic. It also limits a
  ///     lifetime that another job stored with the response.
  package init(of response: StoredResponse, at now: Int64, assigned: Int?, fallback: Int?) {
    let control = CacheControl(response.fields)
    let initialAge = Self.initialAge(response)
    lifetime = DeltaSeconds.saturated(
      Self.explicitLifetime(response, control) ?? assigned
        ?? min(response.assignedLifetime ?? .max, fallback ?? Self.heuristicLifetime(response)))
    age = min(initialAge + Self.seconds(from: response.responseTime, to: now), DeltaSeconds.maximum)
    // A 304 response may have added a directive that forbids storing, after the response was stored.
    needsValidation =
      control.concernsAll(.noCache) || control.concernsAll(.private)
      || (control.has(.noStore) && !control.has(.mustUnderstand))
    isFresh = !needsValidation && age < lifetime
    freshUntil =
      needsValidation ? nil : response.responseTime + Int64(lifetime - initialAge) * 1000
    permitsStale =
      !needsValidation && !control.has(.mustRevalidate) && !control.has(.proxyRevalidate)
      && !control.has(.sharedMaxAge)
    let overdue = age - lifetime
    let isWithin = { (window: Int?) in window.map { overdue < $0 } ?? false }
    permitsStaleWhileRevalidating = permitsStale && isWithin(control.seconds(.staleWhileRevalidate))
    permitsStaleIfError = permitsStale && isWithin(control.seconds(.staleIfError))
    isImmutable = control.has(.immutable)
  }
}

/// Calculations in whole seconds.
extension Freshness {
  /// The lifetime that the response states (section 4.2.1); nil if it states none. An invalid `Expires` counts as expired.
  private static func explicitLifetime(_ response: StoredResponse, _ control: CacheControl) -> Int?
  {
    if let seconds = control.seconds(.sharedMaxAge) ?? control.seconds(.maxAge) { return seconds }
    guard response.fields.first("expires") != nil else { return nil }
    guard let expires = response.date("expires") else { return 0 }
    return seconds(from: response.generated, to: expires)
  }

  /// A tenth of the time between `Last-Modified` and `Date`.
  private static func heuristicLifetime(_ response: StoredResponse) -> Int {
    response.lastModified.map { seconds(from: $0, to: response.generated) / 10 } ?? 0
  }

  /// The age of the response when it was received. Only the first member of `Age` is used, and ignored if it is not a number
  /// (section 5.1).
  private static func initialAge(_ response: StoredResponse) -> Int {
    let apparent = seconds(from: response.generated, to: response.responseTime)
    let told = response.fields.members("age").first.flatMap(DeltaSeconds.read) ?? 0
    let delay = seconds(from: response.requestTime, to: response.responseTime)
    return DeltaSeconds.saturated(max(apparent, told + delay))
  }

  /// The whole seconds between two times, never negative.
  private static func seconds(from earlier: Int64, to later: Int64) -> Int {
    let (milliseconds, overflow) = later.subtractingReportingOverflow(earlier)
    guard !overflow else { return later > earlier ? DeltaSeconds.maximum : 0 }
    return DeltaSeconds.saturated(Int(milliseconds / 1000))
  }
}

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
