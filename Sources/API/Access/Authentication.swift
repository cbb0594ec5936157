internal import Digests
internal import HTTP
internal import HTTPTypes
internal import Jobs
internal import Synchronization

/// Identifies the client of a request by its token (RFC 6750). The tokens can be replaced while the service runs.
final class Authentication: Sendable {
  /// The client of a request and its permissions.
  struct Identity: Sendable {
    var caller: Caller
    var scopes: Set<Scope>
    /// Nil if no tokens are configured.
    var token: Token?
  }

  private struct Weak: Sendable { weak let stream: AuthorizedStream? }

  private struct State {
    var tokens: [Token]
    /// The open streams. Each is removed when it is deallocated.
    var streams: [ObjectIdentifier: Weak] = [:]
  }

  private let state: Mutex<State>
  private static let everyone = Identity(
    caller: Caller(owner: .anonymous, isAdmin: true), scopes: [.jobs, .admin], token: nil)

  init(tokens: [Token]) { state = Mutex(State(tokens: tokens)) }

  /// Replaces all tokens. Ends the streams whose token is gone, or now has another owner or other scopes.
  func replace(_ tokens: [Token]) {
    // Revoked outside the lock: releasing a stream calls ``removeStream(_:)``, which takes the lock.
    let streams = state.withLock { state in
      state.tokens = tokens
      return state.streams.values.compactMap(\.stream)
    }
    for stream in streams where !Self.isValid(stream.identity, among: tokens) { stream.revoke() }
  }

  /// Wraps the stream so that it ends as soon as its token is no longer valid.
  func bind(_ stream: any ContentStream, to identity: Identity) -> any ContentStream {
    let stream = AuthorizedStream(stream, of: identity, self)
    let tokens = state.withLock { state in
      state.streams[ObjectIdentifier(stream)] = Weak(stream: stream)
      return state.tokens
    }
    // The tokens may have been replaced after the request was identified.
    if !Self.isValid(identity, among: tokens) { stream.revoke() }
    return stream
  }

  /// Removes a stream that was deallocated.
  func removeStream(_ stream: ObjectIdentifier) { state.withLock { $0.streams[stream] = nil } }

  /// Returns the client of a request: everyone if no tokens are configured; nil if the request has no valid token.
  func identify(_ fields: HTTPFields) -> Identity? {
    let tokens = state.withLock { $0.tokens }
    if tokens.isEmpty { return Self.everyone }
    guard let field = fields[.authorization], let secret = Self.bearer(field),
      let token = Self.token(of: secret, among: tokens)
    else { return nil }
    return Self.identity(of: token)
  }

  private static func identity(of token: Token) -> Identity {
    var scopes = token.scopes
    // An admin may also use the routes that need the scope `jobs`.
    if scopes.contains(.admin) { scopes.insert(.jobs) }
    let caller = Caller(
      owner: token.owner, isAdmin: scopes.contains(.admin), limits: token.limits)
    return Identity(caller: caller, scopes: scopes, token: token)
  }

  /// Whether these tokens give the identity the same owner and scopes. Changed limits apply to the next request only.
  private static func isValid(_ identity: Identity, among tokens: [Token]) -> Bool {
    guard let token = identity.token else { return tokens.isEmpty }
    guard let known = tokens.last(where: { $0.digest == token.digest }) else { return false }
    let now = Self.identity(of: known)
    return now.caller.owner == identity.caller.owner && now.scopes == identity.scopes
  }

  /// Whether the identity is still valid with the current tokens.
  func isValid(_ identity: Identity) -> Bool {
    Self.isValid(identity, among: state.withLock { $0.tokens })
  }

  /// The 401 for a request whose token was removed or changed while its body was received.
  static var tokenRevoked: Problem {
    Problem(
      .unauthorized, "The token was removed or changed during the request. Use a current token."
    )
    .with(.wwwAuthenticate, #"Bearer realm="imagefetch", error="invalid_token""#)
  }

  /// The 401 for a request without a valid token (RFC 6750 section 3).
  static func unauthorized(_ fields: HTTPFields) -> Problem {
    // A request with another scheme has no token, so it gets no `error` (section 3.1).
    let wrong = fields[.authorization].flatMap(bearer) != nil
    let detail =
      wrong
      ? "The token is not valid. Ask the operator for one."
      : "Send a token: Authorization: Bearer …"
    let challenge = #"Bearer realm="imagefetch""# + (wrong ? #", error="invalid_token""# : "")
    return Problem(.unauthorized, detail).with(.wwwAuthenticate, challenge)
  }

  /// The 403 for a request whose token lacks a scope.
  static func forbidden(lacking scope: Scope) -> Problem {
    let challenge =
      #"Bearer realm="imagefetch", error="insufficient_scope", scope="\#(scope.rawValue)""#
    return Problem(
      .forbidden, "The token lacks the scope \(scope.rawValue). Use a token that has it."
    )
    .with(.wwwAuthenticate, challenge)
  }

  /// Compares with every token and every byte, so that the duration reveals nothing about them.
  private static func token(
    of secret: Substring.UTF8View, among tokens: [Token]
  ) -> Token? {
    let digest = Array(SHA256.hash(data: Array(secret)))
    var found: Token?
    for token in tokens {
      var difference: UInt8 = 0
      for place in 0..<32 { difference |= digest[place] ^ token.digest.bytes[place] }
      if difference == 0 { found = token }
    }
    return found
  }

  private static func bearer(_ field: String) -> Substring.UTF8View? {
    let field = field.utf8
    guard field.count > 7, Substring(field.prefix(7)).lowercased() == "bearer " else { return nil }
    let secret = field.dropFirst(7).drop { $0 == 0x20 }
    return secret.isEmpty ? nil : secret
  }
}

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

/// A response stream that ends when its token is no longer valid. Otherwise a client could use a removed token for as
/// long as it keeps its connection open.
///
/// A stream whose normal end would mean "complete" fails instead, so that the client does not mistake it for complete.
final class AuthorizedStream: ContentStream {
  private struct State {
    var isRevoked = false
    var wake: (@Sendable () -> Void)?
  }

  /// The client that opened the stream.
  let identity: Authentication.Identity
  private let stream: any ContentStream
  private let authentication: Authentication
  private let state = Mutex(State())

  init(
    _ stream: any ContentStream, of identity: Authentication.Identity,
    _ authentication: Authentication
  ) {
    (self.stream, self.identity, self.authentication) = (stream, identity, authentication)
  }

  deinit { authentication.removeStream(ObjectIdentifier(self)) }

  func attach(_ wake: @escaping @Sendable () -> Void) {
    state.withLock { $0.wake = wake }
    stream.attach(wake)
  }

  func next() -> StreamPiece {
    guard state.withLock({ $0.isRevoked }) else { return stream.next() }
    return mayEndAnywhere ? .end : .failed
  }

  var keepAlive: KeepAlive? { stream.keepAlive }
  var mayEndAnywhere: Bool { stream.mayEndAnywhere }

  /// Ends the stream at once, even if it has no data to send.
  func revoke() {
    stream.willAbort()
    let wake = state.withLock { state in
      state.isRevoked = true
      return state.wake
    }
    wake?()
  }
}
