package import Foundation
internal import Synchronization

/// Secrets of all services that the tests of this process run. Tests search their logs, metrics and responses for them.
///
/// A test registers secrets that it configures. Credentials that clients send are registered automatically.
package final class SecretWatch: Sendable {
  /// The instance for all services of these tests.
  package static let shared = SecretWatch()

  /// Where the secret must not appear.
  package enum Audience: Sendable {
    /// In logs and metrics. Its owner may see it, such as the URL of a submitted job.
    case operators
    /// Anywhere.
    case everybody
  }

  private struct Secret {
    var what: String
    var audience: Audience
    /// The secret itself, and its encodings in responses and logs.
    var spellings: [Data]
  }

  private let secrets = Mutex<[String: Secret]>([:])

  /// An empty watch.
  package init() {}

  /// Shorter texts may be ordinary words, so they are not registered.
  private static let shortest = 12

  /// Registers a secret.
  /// - Parameter what: a description for reports.
  package func plant(_ secret: String, _ what: String, from audience: Audience = .everybody) {
    guard secret.utf8.count >= Self.shortest else { return }
    let encoded = secret.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? secret
    let spellings = Set([
      secret, encoded, secret.uppercased(), Data(secret.utf8).base64EncodedString(),
      secret.replacing("/", with: "\\/"),
    ])
    secrets.withLock {
      $0[secret] = Secret(
        what: what, audience: audience, spellings: spellings.map { Data($0.utf8) })
    }
  }

  /// Descriptions of the secrets that a text contains.
  /// - Parameter isAnswer: whether the text is a response to the owner and not for operators.
  package func found(in text: Data, isAnswer: Bool) -> [String] {
    let all = secrets.withLock { Array($0.values) }
    return all.filter { secret in
      if isAnswer, secret.audience == .operators { return false }
      return secret.spellings.contains { text.range(of: $0) != nil }
    }.map(\.what).sorted()
  }

  /// The number of registered secrets.
  package var count: Int { secrets.withLock { $0.count } }
}

// MARK: Automatic registration

extension SecretWatch {
  /// The secrets in a configuration's environment variables and in the files that these name.
  package func plant(environment: [String: String]) {
    for (name, value) in environment {
      let isSecret = ["KEYS", "SECRETS", "PASSWORD", "SECRET_ACCESS_KEY", "SESSION_TOKEN"]
        .contains(where: name.hasSuffix)
      if isSecret { for one in value.split(separator: ",") { plant(String(one), name) } }
      for match in value.matches(of: #/"(whsec_[^"]+)"|://[^/@\s]*:([^/@\s]+)@/#) {
        if let secret = match.1 ?? match.2 { plant(String(secret), name) }
      }
      for match in value.matches(of: #/\bsha256: *"?([0-9a-f]{64})/#) {
        plant(String(match.1), "\(name), a token's digest")
      }
      let paths = value.matches(of: #/\/[^\s"',{}]*(?:secret|password|token|key)[^\s"',{}]*/#)
      for path in paths.map({ String($0.0) }) {
        for line in (try? String(contentsOfFile: path, encoding: .utf8))?.split(separator: "\n")
          ?? []
        where !line.hasPrefix("-----") {
          plant(String(line), path)
        }
      }
    }
  }

  /// The secrets in a request: the client's credentials, and those for origins, receivers and stores.
  package func plant(path: String, headers: [String: String], body: Data?) {
    plant(fields: headers, "a client's")
    plant(queryOf: path, "a request's", from: .everybody)
    guard let body, body.count < 1 << 20, headers.values.contains(where: { $0.contains("json") }),
      let json = try? JSONSerialization.jsonObject(with: body)
    else { return }
    plant(json: json, below: "")
  }

  private func plant(fields: [String: String], _ whose: String) {
    let names = ["authorization", "cookie", "x-api-key", "x-auth-token", "proxy-authorization"]
    for (name, value) in fields where names.contains(name.lowercased()) {
      plant(String(value.split { $0 == " " || $0 == "=" }.last ?? ""), "\(whose) \(name)")
    }
  }

  private func plant(queryOf url: String, _ whose: String, from audience: Audience) {
    for match in url.matches(
      of: #/[?&]((?i)[a-z-]*(?:signature|token|secret|password|api_?key))=([^&#]+)/#)
    {
      plant(String(match.2), "\(whose) \(match.1)", from: audience)
    }
  }

  private func plant(json: Any, below member: String) {
    switch json {
    case let all as [Any]: for one in all { plant(json: one, below: member) }
    case let object as [String: Any]:
      if let fields = object["headers"] as? [String: String] {
        plant(fields: fields, "an origin's")
      }
      for (name, value) in object {
        guard let text = value as? String else {
          plant(json: value, below: name)
          continue
        }
        let isSentTo = ["deliver", "notify"].contains(member)
        plant(queryOf: text, "\(member) \(name)", from: isSentTo ? .everybody : .operators)
      }
    default: break
    }
  }
}
