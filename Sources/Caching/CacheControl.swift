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
