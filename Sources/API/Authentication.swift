internal import Crypto
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

  private let tokens: Mutex<[Token]>
  private static let everyone = Identity(
    caller: Caller(owner: .anonymous, isAdmin: true), scopes: [.jobs, .admin], token: nil)

  init(tokens: [Token]) { self.tokens = Mutex(tokens) }

  /// From now on these are the tokens.
  func replace(_ tokens: [Token]) { self.tokens.withLock { $0 = tokens } }

  /// Who asks: everyone where no tokens are configured; nil without a token of ours.
  func identify(_ fields: HTTPFields) -> Identity? {
    let tokens = tokens.withLock { $0 }
    if tokens.isEmpty { return Self.everyone }
    guard let field = fields[.authorization], let secret = Self.bearer(field),
      let token = Self.token(of: secret, among: tokens)
    else { return nil }
    var scopes = token.scopes
    // Everyone's jobs include the admin's own.
    if scopes.contains(.admin) { scopes.insert(.jobs) }
    let caller = Caller(
      owner: token.owner, isAdmin: scopes.contains(.admin), limits: token.limits)
    return Identity(caller: caller, scopes: scopes, token: token)
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
