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
