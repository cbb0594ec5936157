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
