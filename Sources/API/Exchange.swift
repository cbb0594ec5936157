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
  func place(for exchange: Exchange) throws(Problem) -> Lease {
    let place = connections.lease(for: exchange.client)
    guard place.take(1) else {
      throw Problem(.rateLimited, "Half of all connections wait for this client while others ask.")
        .with(.retryAfter, "5")
    }
    return place
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
      limit = min(.seconds(seconds), longest)
      preferenceApplied = "wait=\(seconds)"
    } else {
      return nil
    }
  }

  /// A preference that can't be understood is as good as none (RFC 7240 section 2).
  private static func preferred(_ field: String) -> Int? {
    for preference in field.utf8.split(separator: UInt8(ascii: ",")) {
      let word = Substring(preference).drop { $0 == " " || $0 == "\t" }
      guard word.prefix(5).lowercased() == "wait=" else { continue }
      let digits = word.dropFirst(5).prefix { $0 != ";" && $0 != " " }
      guard digits.utf8.count <= 9 else { return nil }
      return Int(digits).flatMap { $0 >= 0 ? $0 : nil }
    }
    return nil
  }
}
