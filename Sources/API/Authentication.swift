internal import Digests
internal import HTTP
internal import HTTPTypes
internal import Jobs
internal import Synchronization

/// Knows the tokens and tells who asks.
final class Authentication: Sendable {
  /// Who asks, and what they may.
  struct Identity: Sendable {
    var caller: Caller
    var scopes: Set<Scope>
    /// Nil where there are none.
    var token: Token?
  }

  private struct Weak: Sendable { weak let stream: AuthorizedStream? }

  private struct State {
    var tokens: [Token]
    /// Those under way, each until it is let go of.
    var streams: [ObjectIdentifier: Weak] = [:]
  }

  private let state: Mutex<State>
  private static let everyone = Identity(
    caller: Caller(owner: .anonymous, isAdmin: true), scopes: [.jobs, .admin], token: nil)

  init(tokens: [Token]) { state = Mutex(State(tokens: tokens)) }

  /// From now on these are the tokens; streams end whose request they would refuse, or take for another's.
  func replace(_ tokens: [Token]) {
    // Ended outside the lock, which whoever lets go of one takes.
    let streams = state.withLock { state in
      state.tokens = tokens
      return state.streams.values.compactMap(\.stream)
    }
    for stream in streams where !Self.holds(stream.identity, among: tokens) { stream.revoke() }
  }

  /// The stream, for as long as its request would be let in to the same.
  func bind(_ stream: any ContentStream, to identity: Identity) -> any ContentStream {
    let stream = AuthorizedStream(stream, of: identity, self)
    let tokens = state.withLock { state in
      state.streams[ObjectIdentifier(stream)] = Weak(stream: stream)
      return state.tokens
    }
    // They may have become others since the request was let in.
    if !Self.holds(identity, among: tokens) { stream.revoke() }
    return stream
  }

  /// A stream was let go of.
  func forget(_ stream: ObjectIdentifier) { state.withLock { $0.streams[stream] = nil } }

  /// Who asks: everyone where no tokens are configured; nil without a token of ours.
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
    // Everyone's jobs include the admin's own.
    if scopes.contains(.admin) { scopes.insert(.jobs) }
    let caller = Caller(
      owner: token.owner, isAdmin: scopes.contains(.admin), limits: token.limits)
    return Identity(caller: caller, scopes: scopes, token: token)
  }

  /// Whether who was let in so is let in to the same by these tokens. A token's limits are for what is asked next.
  private static func holds(_ identity: Identity, among tokens: [Token]) -> Bool {
    guard let token = identity.token else { return tokens.isEmpty }
    guard let known = tokens.last(where: { $0.digest == token.digest }) else { return false }
    let now = Self.identity(of: known)
    return now.caller.owner == identity.caller.owner && now.scopes == identity.scopes
  }

  /// Whether a request that was let in so would be let in to the same now.
  func admits(_ identity: Identity) -> Bool {
    Self.holds(identity, among: state.withLock { $0.tokens })
  }

  /// What a request is answered with that was let in, and would be no more before all of it had come.
  static var withdrawal: Problem {
    Problem(.unauthorized, "The token was taken away, or changed, while this came.")
      .with(.wwwAuthenticate, #"Bearer realm="imagefetch", error="invalid_token""#)
  }

  /// What a request without a token of ours is answered with (RFC 6750 section 3).
  static func refusal(_ fields: HTTPFields) -> Problem {
    // Who tried by another scheme sent no token (section 3.1).
    let wrong = fields[.authorization].flatMap(bearer) != nil
    let detail =
      wrong ? "The token is not one of this service's." : "Send a token: Authorization: Bearer …"
    let challenge = #"Bearer realm="imagefetch""# + (wrong ? #", error="invalid_token""# : "")
    return Problem(.unauthorized, detail).with(.wwwAuthenticate, challenge)
  }

  /// What a request whose token lacks a scope is answered with.
  static func refusal(lacking scope: Scope) -> Problem {
    let challenge =
      #"Bearer realm="imagefetch", error="insufficient_scope", scope="\#(scope.rawValue)""#
    return Problem(.forbidden, "The token lacks the scope \(scope.rawValue).")
      .with(.wwwAuthenticate, challenge)
  }

  /// Compares with every token and every byte, so that the time taken tells nothing of either.
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
