import API
import App
import Foundation
import Testing

@Suite("Rules about several keys")
struct ConfigurationRuleTests {
  static let hash = String(repeating: "ab", count: 32)

  @Test(
    "listening beyond loopback requires an explicit choice about tokens",
    arguments: [
      ("host: 0.0.0.0", "", false), ("host: \"::\"", "", false), ("host: 192.0.2.1", "", false),
      ("host: 127.8.9.1", "", true), ("host: \"::ffff:127.0.0.1\"", "", true),
      ("host: localhost", "", true), ("host: 0.0.0.0", "auth: { disabled: true }", true),
      ("host: 0.0.0.0", "auth: { tokens: [{name: a, sha256: \(hash), scopes: [jobs]}] }", true),
      ("host: 0.0.0.0", "auth: { tokens: [] }", false),
    ])
  func openness(host: String, auth: String, isFine: Bool) {
    let lines = mistakes {
      try Configuration.load(yaml: "server: { \(host) }\n\(auth)", name: "f")
    }
    #expect(lines.isEmpty == isFine)
    let mend = "set auth.tokens, or auth.disabled: true to be open to everyone"
    #expect(isFine || lines.first?.hasPrefix("f:1:17: server.host: ") == true)
    #expect(isFine || lines.first?.hasSuffix(mend) == true)
  }

  @Test("a rule is checked only if each of its keys is valid")
  func notTwice() {
    let yaml = "server: { host: 0.0.0.0 }\nauth: { tokens: [5] }"
    #expect(
      mistakes { try Configuration.load(yaml: yaml, name: "f") } == [
        "f:2:18: auth.tokens[0]: is not an entry with name, sha256 (or token_file) and scopes"
      ])
  }

  @Test(
    "a rule is not checked if the file could not be read completely",
    arguments: ["auth: *x", "auth: 5", "auth: { tokens: [*x] }", "auth: {"])
  func unread(auth: String) {
    let lines = mistakes {
      try Configuration.load(yaml: "server: { host: 0.0.0.0 }\n\(auth)", name: "f")
    }
    #expect(lines.count == 1)
    #expect(!lines.joined().contains("server.host"))
  }

  @Test("a certificate and its key must be set together")
  func tls() {
    let one = mistakes {
      try Configuration.load(yaml: "server: { tls: { key: /dev/null } }", name: "f")
    }
    #expect(one == ["f:1:23: server.tls.key: needs server.tls.certificate too"])
    let both = "server: { tls: { key: /dev/null, certificate: /dev/null } }"
    #expect(mistakes { try Configuration.load(yaml: both, name: "f") }.isEmpty)
  }

  @Test(
    "a destination must name its owners if the tokens have several names",
    arguments: [
      ("[a]", "", true), ("[a, a]", "", true), ("[a, b]", "", false),
      ("[a, b]", "owners: [a]", true),
      ("[a, b]", "owners: [a, c]", true), ("[]", "", true),
    ])
  func destinationOwners(names: String, owners: String, isFine: Bool) {
    let tokens = names.matches(of: #/[a-z]/#).enumerated().map { index, name in
      let hash = String(repeating: "0\(index)", count: 32)
      return "{name: \(name.0), sha256: \"\(hash)\", scopes: [jobs]}"
    }
    let destination = (["bucket: shop-images"] + [owners].filter { !$0.isEmpty })
      .joined(separator: ", ")
    let yaml = """
      auth: { tokens: [\(tokens.joined(separator: ", "))] }
      destinations: { shop: { \(destination) } }
      """
    let lines = mistakes { try Configuration.load(yaml: yaml, name: "f") }
    let mistake =
      "shop has no owners, but the tokens have several names: list the owners that may use it"
    #expect(lines == (isFine ? [] : ["f:2:15: destinations: \(mistake)"]))
  }

  @Test("a destination's owners are names of tokens, and at least one")
  func ownerNames() {
    for (owners, isFine) in [
      ("[web, a.b-c_1]", true), ("[]", false), ("web", false), ("[a b]", false),
    ] {
      let yaml = "destinations: { shop: { bucket: shop-images, owners: \(owners) } }"
      let lines = mistakes { try Configuration.load(yaml: yaml, name: "f") }
      #expect(lines.isEmpty == isFine, "\(lines)")
      #expect(isFine || lines.first?.contains("destinations.shop.owners") == true)
    }
  }

  @Test("the first retry delay must not exceed the longest")
  func backoff() {
    let yaml = "jobs: { retry_backoff: { maximum: 100ms } }"
    #expect(
      mistakes { try Configuration.load(yaml: yaml, name: "f") } == [
        "f:1:35: jobs.retry_backoff.maximum: "
          + "the initial backoff (500ms) is longer than the maximum (100ms)"
      ])
  }

  @Test(
    "an incomplete token is reported",
    arguments: [
      ("{ name: a, scopes: [jobs] }", "[0]: needs either sha256 or token_file"),
      ("{ name: a, sha256: \(hash) }", "[0].scopes: is missing"),
      ("{ sha256: \(hash), scopes: [jobs] }", "[0].name: is missing"),
      ("{ name: \"\", sha256: \(hash), scopes: [jobs] }", "[0].name: \"\" is empty"),
      ("{ name: view, sha256: \(hash), scopes: [jobs] }", "[0].name: \"view\" is reserved"),
      ("{ name: a, sha256: \(hash), scopes: [] }", "[0].scopes: must not be empty"),
      ("{ name: a, sha: x, sha256: \(hash), scopes: [jobs] }", "[0].sha: unknown key"),
      (
        "{ name: a, sha256: \(hash), token_file: /dev/null, scopes: [jobs] }",
        "[0]: needs either sha256 or token_file"
      ),
      (
        "{ name: a, token_file: /dev/null, scopes: [jobs] }",
        "[0].token_file: \"/dev/null\" contains no token"
      ),
      (
        "{ name: a, sha256: \(hash), scopes: [jobs] }, { name: a, sha256: \(hash), scopes: [jobs] }",
        "[1]: has the same token as auth.tokens[0]"
      ),
    ])
  func tokens(entries: String, message: String) {
    let lines = mistakes {
      try Configuration.load(yaml: "auth: { tokens: [\(entries)] }", name: "f")
    }
    let expected = message.split(separator: "\n").map { "auth.tokens" + $0 }
    #expect(lines.map { $0.replacing(#/^f:1:\d+: /#, with: "") } == expected)
  }

  @Test("secrets are read from files and never printed")
  func secrets() throws {
    let folder = URL(filePath: NSTemporaryDirectory()).appending(path: "imagefetch-\(UUID())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let token = folder.appending(path: "token").path()
    let keys = folder.appending(path: "keys").path()
    try " test\n".write(toFile: token, atomically: true, encoding: .utf8)
    let (newest, older) = (String(repeating: "0f", count: 16), String(repeating: "E1", count: 20))
    try "# newest\n\(newest)\n\n\(older)\r\n".write(toFile: keys, atomically: true, encoding: .utf8)
    let configuration = try Configuration.load(
      yaml: """
        auth: { tokens: [
          { name: a, token_file: "\(token)", scopes: [jobs] },
          { name: b, sha256: \(Self.hash), scopes: [admin, jobs] } ] }
        view: { keys_file: "\(keys)" }
        fetch: { proxy: "http://someone:hushed@proxy:1" }
        """, name: "f")
    let expected = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    #expect(configuration.auth.tokens[0].sha256.map(hex).joined() == expected)
    #expect(configuration.auth.tokens[1].scopes == [.admin, .jobs])
    #expect(
      configuration.view.keys == [
        [UInt8](repeating: 0x0F, count: 16), [UInt8](repeating: 0xE1, count: 20),
      ])
    let text = configuration.effective()
    for secret in [Self.hash, expected, newest, older, "hushed", "someone"] {
      #expect(!text.localizedCaseInsensitiveContains(secret))
    }
    #expect(text.contains("{ name: b, sha256: hidden, scopes: [jobs, admin] }"))
    #expect(text.contains("proxy: \"http://hidden@proxy:1\""))
  }

  @Test(
    "a database's user and password are never printed, in any notation",
    arguments: [
      ("postgresql://host/jobs?sslmode=require", "postgresql://host/jobs?sslmode=require"),
      ("postgresql://me:secret@host/jobs", "postgresql://hidden@host/jobs"),
      ("postgresql://me:sec?ret@host/jobs", "postgresql://hidden@host/jobs"),
      ("postgresql://me:s@cret@host/j?port=1", "postgresql://hidden@host/j?port=1"),
      ("postgresql://host/jobs?user=me&password=secret", "postgresql://host/jobs?hidden"),
      ("postgresql://host/jobs?p%61ssword=secret", "postgresql://host/jobs?hidden"),
    ])
  func database(url: String, shown: String) throws {
    let text = try Configuration.load(yaml: "storage: { jobs: \"\(url)\" }", name: "f").effective()
    #expect(text.contains("\"\(shown)\""), "\(text)")
  }

  @Test("an invalid secret is not printed")
  func mistakenSecrets() {
    let yaml = "fetch: { proxy: \"ftp://a:secret@b\" }\nview: { keys: [secret] }"
    let lines = mistakes { try Configuration.load(yaml: yaml, name: "f") }
    #expect(lines.count == 2)
    #expect(!lines.joined().contains("secret"))
  }

  private func hex(_ byte: UInt8) -> String { String(format: "%02x", byte) }
}
