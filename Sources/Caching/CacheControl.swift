/// The `Cache-Control` directives of a request or a response (RFC 9111 section 5.2). What it
/// doesn't know it ignores.
public struct CacheControl: Sendable, Equatable {
  /// The known directives: RFC 9111's, RFC 5861's and RFC 8246's.
  public enum Directive: String, Sendable, CaseIterable {
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

  /// Each time that a directive is there, its argument as it is written: nil without one.
  private var arguments: [Directive: [String?]] = [:]

  /// The directives of all `Cache-Control` lines.
  public init(_ fields: [Field]) {
    for member in fields.members("cache-control") {
      let parts = member.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      // Blanks around the `=` are no grammar; the name counts all the same, so that `no-store =1`
      // forbids.
      guard let name = parts.first.map({ FieldList.trimmed($0).lowercased() }),
        let directive = Directive(rawValue: name)
      else { continue }
      let isSpaced = parts[0].utf8.count != name.utf8.count
      let argument = parts.count == 2 ? (isSpaced ? " " : "") + parts[1] : nil
      arguments[directive, default: []].append(argument)
    }
  }

  /// Whether it is there, with any argument or none.
  public func has(_ directive: Directive) -> Bool { arguments[directive] != nil }

  /// The directive's seconds, quoted or not, at most 2^31; nil where it isn't there. The first
  /// counts of several. What is no number is 0: section 4.2.1 would have it stale.
  public func seconds(_ directive: Directive) -> Int? {
    guard let first = arguments[directive]?.first else { return nil }
    return first.flatMap { DeltaSeconds.read(FieldList.unquoted($0) ?? $0) } ?? 0
  }

  /// Whether a `no-cache` or `private` is about the whole response and not only about fields that
  /// it lists.
  public func concernsAll(_ directive: Directive) -> Bool {
    arguments[directive]?.contains { Self.names($0).isEmpty } ?? false
  }

  /// The fields, in lower case, that a `no-cache` or `private` lists (sections 5.2.2.4 and
  /// 5.2.2.7).
  public func fieldNames(_ directive: Directive) -> Set<String> {
    Set(arguments[directive]?.flatMap(Self.names) ?? [])
  }

  /// Only of a quoted string: anything else is taken to be about all.
  private static func names(_ argument: String?) -> [String] {
    argument.flatMap(FieldList.unquoted).map { FieldList.members($0).map { $0.lowercased() } } ?? []
  }
}
