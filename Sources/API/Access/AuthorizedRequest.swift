internal import HTTP
internal import HTTPTypes
internal import Jobs

/// A request that passed the checks before a handler: its path and method are known, and its client has the permission.
struct AuthorizedRequest: Sendable {
  let request: Request
  /// The job in the path.
  let id: JobID
  /// The client; nil if the route needs no token.
  let identity: Authentication.Identity?
  /// The client whose limits (connections, memory) the request counts towards.
  let client: RateLimiter.Client

  var fields: HTTPFields { request.fields }
  var caller: Caller { identity?.caller ?? Caller(owner: .anonymous, isAdmin: false) }

  /// Throws if there is a query: the route has no parameters.
  func checkNoQuery() throws(Problem) {
    guard request.query != nil else { return }
    var query = Query(request.query)
    try query.checkComplete()
  }
}

extension Routes {
  /// Reserves one of the connections that may wait for an event. It is released with the result.
  func reserveConnection(for exchange: AuthorizedRequest) throws(Problem) -> Budget.Allocation {
    let place = connections.allocation(for: exchange.client)
    guard place.reserve(1) else {
      throw Problem(
        .rateLimited,
        "Too many connections of this client are waiting. Use fewer waiting requests or streams."
      )
      .with(.retryAfter, "5")
    }
    return place
  }

  /// Returns `wait`. Throws if the query has any other parameter.
  func waitOnly(_ exchange: AuthorizedRequest) throws(Problem) -> Wait? {
    var query = Query(exchange.request.query)
    let wait = Wait(&query, exchange.fields, longest: configuration.maxWait)
    try query.checkComplete()
    return wait
  }
}

/// The time that a client is willing to wait for a change.
struct Wait: Sendable, Equatable {
  /// At most the longest time allowed.
  let limit: Duration
  /// The value of `Preference-Applied` (RFC 7240 section 3); nil if `Prefer` was not used.
  let preferenceApplied: String?

  /// Reads `wait` from the query, or from `Prefer`; nil if both are missing.
  init?(_ query: inout Query, _ fields: HTTPFields, longest: Duration) {
    if let seconds = query.seconds("wait") {
      limit = .seconds(min(seconds, longest.inSeconds))
      preferenceApplied = nil
    } else if let field = fields[.prefer], let seconds = Self.preferred(field) {
      limit = .seconds(min(Double(seconds), longest.inSeconds))
      preferenceApplied = "wait=\(seconds)"
    } else {
      return nil
    }
  }

  /// Returns the seconds of `wait`. Malformed preferences are ignored (RFC 7240 section 2).
  private static func preferred(_ field: String) -> Int? {
    var rest = field.utf8[...]
    repeat {
      MediaType.skipSpace(&rest)
      let name = MediaType.token(&rest).lowercased()
      if name == "wait" { return seconds(&rest) }
    } while skipPreference(&rest)
    return nil
  }

  /// Parses `=3` and `="3"`, with optional white space around the equals sign.
  private static func seconds(_ rest: inout MediaType.Bytes) -> Int? {
    MediaType.skipSpace(&rest)
    guard rest.popFirst() == UInt8(ascii: "=") else { return nil }
    MediaType.skipSpace(&rest)
    let isQuoted = rest.first == UInt8(ascii: "\"")
    let word: String? = isQuoted ? MediaType.quoted(&rest) : MediaType.token(&rest)
    MediaType.skipSpace(&rest)
    guard let word, !word.isEmpty, word.utf8.allSatisfy({ 0x30...0x39 ~= $0 }),
      rest.isEmpty || ",;".utf8.contains(rest[rest.startIndex])
    else { return nil }
    // A number that is too large is shortened to the limit later.
    return Int(word) ?? .max
  }

  /// Skips to the next preference, behind a comma outside quotes.
  /// - Returns: false at the end of the field.
  private static func skipPreference(_ rest: inout MediaType.Bytes) -> Bool {
    while let byte = rest.first {
      if byte == UInt8(ascii: "\"") {
        guard MediaType.quoted(&rest) != nil else { return false }
      } else {
        rest.removeFirst()
        if byte == UInt8(ascii: ",") { return true }
      }
    }
    return false
  }
}

extension HTTPFields {
  /// Adds `Preference-Applied` if `Prefer` was used.
  mutating func acknowledge(_ wait: Wait?) {
    guard let applied = wait?.preferenceApplied else { return }
    append(HTTPField(name: .preferenceApplied, value: applied))
  }
}
