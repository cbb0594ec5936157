internal import HTTP
internal import HTTPTypes
internal import Jobs

/// One request that may be handled: it has a known path, a method that goes with it, and a caller who may.
struct Exchange: Sendable {
  let request: Request
  /// The job that the path names.
  let id: JobID
  /// Who asks, and by what; nil where nobody need say.
  let identity: Authentication.Identity?
  /// Whose share of the connections and of the memory it takes.
  let client: RateLimiter.Client

  var fields: HTTPFields { request.fields }
  var caller: Caller { identity?.caller ?? Caller(owner: .anonymous, isAdmin: false) }

  /// Throws if there is a query: it means nothing here.
  func refuseQuery() throws(Problem) {
    guard request.query != nil else { return }
    var query = Query(request.query)
    try query.finish()
  }
}

extension Routes {
  /// A place among the connections whose answer waits for something to happen, until it is let go of.
  func place(for exchange: Exchange) throws(Problem) -> Budget.Share {
    let place = connections.share(for: exchange.client)
    guard place.take(1) else {
      throw Problem(.rateLimited, "Half of all connections wait for this client while others ask.")
        .with(.retryAfter, "5")
    }
    return place
  }

  /// `wait` where a query may have nothing else.
  func waitAlone(_ exchange: Exchange) throws(Problem) -> Wait? {
    var query = Query(exchange.request.query)
    let wait = Wait(&query, exchange.fields, longest: configuration.maxWait)
    try query.finish()
    return wait
  }
}

/// How long a client would wait for an answer that it likes better.
struct Wait: Sendable, Equatable {
  /// Cut to the longest allowed.
  let limit: Duration
  /// What to tell the client of its `Prefer` field (RFC 7240 section 3).
  let preferenceApplied: String?

  /// `wait` of the query, else of `Prefer`; nil where neither is there.
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

  /// A preference that can't be understood is as good as none (RFC 7240 section 2).
  private static func preferred(_ field: String) -> Int? {
    var rest = field.utf8[...]
    repeat {
      MediaType.skipSpace(&rest)
      let name = MediaType.token(&rest).lowercased()
      if name == "wait" { return seconds(&rest) }
    } while endPreference(&rest)
    return nil
  }

  /// `=3` and `="3"`, white space around the equals sign.
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
    // More than can be counted are cut to the limit as others are.
    return Int(word) ?? .max
  }

  /// Goes on behind the next comma that is in no quotes.
  /// - Returns: false where there is none.
  private static func endPreference(_ rest: inout MediaType.Bytes) -> Bool {
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
  /// Tells a client that its `Prefer` field was heeded.
  mutating func acknowledge(_ wait: Wait?) {
    guard let applied = wait?.preferenceApplied else { return }
    append(HTTPField(name: .preferenceApplied, value: applied))
  }
}
