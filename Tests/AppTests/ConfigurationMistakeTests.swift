import App
import Jobs
import Testing

private let formats = ImageFormat.allCases.map(\.rawValue).joined(separator: ", ")

@Suite("A mistake in the configuration")
struct ConfigurationMistakeTests {
  @Test(
    "a mistake is reported with line, column and key",
    arguments: [
      ("fetch: { timeout: 0s }", "1:19: fetch.timeout: \"0s\" is not within 1ms…10m"),
      ("fetch: { timeout: 11m }", "1:19: fetch.timeout: \"11m\" is not within 1ms…10m"),
      (
        "fetch: { timeout: x }",
        "1:19: fetch.timeout: \"x\" is not a duration (ms, s, m, h, d)"
      ),
      (
        "fetch: { timeout: 1.5 }", "1:19: fetch.timeout: \"1.5\" is not a duration (ms, s, m, h, d)"
      ),
      ("fetch: { timeout: null }", "1:19: fetch.timeout: null is not a duration (ms, s, m, h, d)"),
      ("fetch: { timeout: [1] }", "1:19: fetch.timeout: a list is not 1ms…10m"),
      (
        "fetch: { max_bytes: 1mb }",
        "1:21: fetch.max_bytes: \"1mb\" is not a size (B, KB, MB, GB, KiB, MiB, GiB)"
      ),
      ("fetch: { max_bytes: 0 }", "1:21: fetch.max_bytes: \"0\" is not within 1B…4GiB"),
      (
        "fetch: { max_bytes: 99999999999999999999GiB }",
        "1:21: fetch.max_bytes: \"99999999999999999999GiB\" is not a size (B, KB, MB, GB, KiB, MiB, GiB)"
      ),
      (
        "fetch: { max_bytes: -1 }",
        "1:21: fetch.max_bytes: \"-1\" is not a size (B, KB, MB, GB, KiB, MiB, GiB)"
      ),
      ("server: { port: 65536 }", "1:17: server.port: \"65536\" is not within 0…65535"),
      ("server: { port: \"80\" }", "1:17: server.port: \"80\" is text; write it without quotes"),
      ("server: { port: \"x\" }", "1:17: server.port: \"x\" is not a whole number"),
      ("server: { port: 0x10000 }", "1:17: server.port: \"0x10000\" is not within 0…65535"),
      ("server: { port: 80.5 }", "1:17: server.port: \"80.5\" is not a whole number"),
      ("cache: { enabled: yes }", "1:19: cache.enabled: \"yes\" is not true or false"),
      (
        "cache: { enabled: \"true\" }",
        "1:19: cache.enabled: \"true\" is text; write it without quotes"
      ),
      (
        "server: { host: example.org }",
        "1:17: server.host: \"example.org\" is not an IP address or localhost"
      ),
      ("storage: { path: 5 }", "1:18: storage.path: \"5\" is not text; write it in quotes"),
      ("storage: { path: \"\" }", "1:18: storage.path: \"\" is empty"),
      (
        "storage: { path: \"a\\nb\" }", "1:18: storage.path: \"a\\nb\" contains control characters"
      ),
      ("storage: { path: /dev/null }", "1:18: storage.path: \"/dev/null\" is not a folder"),
      (
        "fetch: { allow_ports: [80, 0] }", "1:28: fetch.allow_ports[1]: \"0\" is not within 1…65535"
      ),
      ("fetch: { allow_ports: 80 }", "1:23: fetch.allow_ports: \"80\" is not a list"),
      (
        "fetch: { allow_schemes: [ftp] }",
        "1:26: fetch.allow_schemes[0]: \"ftp\" is not one of https, http"
      ),
      ("fetch: { allow_schemes: [] }", "1:25: fetch.allow_schemes: must not be empty"),
      (
        "decode: { formats: [tga] }",
        "1:21: decode.formats[0]: \"tga\" is not one of \(formats)"
      ),
      (
        "fetch: { proxy: ftp://x }",
        "1:17: fetch.proxy: \"ftp://x\" is not the URL of a proxy (http, https)"
      ),
      (
        "fetch: { user_agent: \"a\\r\\nb: c\" }",
        "1:22: fetch.user_agent: \"a\\r\\nb: c\" is not visible ASCII up to 256 characters"
      ),
      (
        "sources: { local_root: /nowhere }",
        "1:24: sources.local_root: \"/nowhere\" cannot be read: No such file or directory"
      ),
      (
        "storage: { images: s3://pictures/a/./b }",
        "1:20: storage.images: \"s3://pictures/a/./b\" is not a bucket and prefix (s3://bucket/prefix)"
      ),
      (
        "storage: { images: s3://b/x }",
        "1:20: storage.images: \"s3://b/x\" has no bucket name (3…63 of a-z 0-9 . -) after s3://"
      ),
      ("view: { keys: [aabb] }", "1:16: view.keys[0]: is not 32…2048 hexadecimal digits"),
      // A secret in the place of a list is not printed either.
      ("view: { keys: 0011aabb }", "1:15: view.keys: the value is not a list"),
      ("webhooks: { secrets: whsec_x }", "1:22: webhooks.secrets: the value is not a list"),
      ("auth: { tokens: secret }", "1:17: auth.tokens: the value is not a list"),
      (
        "tracing: { endpoint: \"https://me:secret@x\" }",
        "1:22: tracing.endpoint: \"https://hidden@x\" is not a URL (scheme, host and port only, in lower case)"
      ),
      (
        "log: { level: loud }",
        "1:15: log.level: \"loud\" is not one of trace, debug, info, notice, warning, error, critical"
      ),
      ("fetch: 5", "1:8: fetch: a section must be a mapping of keys"),
      ("[a]", "1:1: the file must be a mapping of keys"),
    ])
  func oneFile(yaml: String, message: String) {
    #expect(
      mistakes { try Configuration.load(yaml: yaml, name: "f.yaml") } == ["f.yaml:" + message])
  }

  @Test(
    "an unknown key is answered with a similar known one",
    arguments: [
      ("fetch: { timout: 1s }", "1:10: fetch.timout: unknown key, did you mean timeout?"),
      ("ftech: { timeout: 1s }", "1:1: ftech: unknown key, did you mean fetch?"),
      ("fetch: { wibble: 1s }", "1:10: fetch.wibble: unknown key"),
      ("server: { tls: { cert: x } }", "1:18: server.tls.cert: unknown key"),
      ("fetch.timeout: 1s", "1:1: fetch.timeout: unknown key"),
      ("\"a\\nb\": 1", "1:1: a\\nb: unknown key"),
    ])
  func unknown(yaml: String, message: String) {
    #expect(
      mistakes { try Configuration.load(yaml: yaml, name: "f.yaml") } == ["f.yaml:" + message])
  }

  @Test("one mistake does not hide others in the file")
  func all() {
    let yaml = """
      server:
        port: -1
        port: 80
      fetch:
        timeout: &t 0s
        stall_timeout: *t
        max_bytez: 1
      auth:
        tokens: [{ name: "a b", scopes: [root], sha256: 12 }]
      api: {
      """
    let expected = [
      "f:2:9: server.port: \"-1\" is not within 0…65535",
      "f:3:3: server.port: is given twice, first on line 2",
      "f:5:12: fetch.timeout: \"0s\" is not within 1ms…10m",
      "f:6:18: fetch.stall_timeout: aliases (*t) are not allowed",
      "f:7:3: fetch.max_bytez: unknown key, did you mean max_bytes?",
      "f:9:20: auth.tokens[0].name: \"a b\" is not 1…64 of A-Z a-z 0-9 . _ -",
      "f:9:36: auth.tokens[0].scopes[0]: \"root\" is not one of jobs, admin",
      "f:9:51: auth.tokens[0].sha256: is not 64 hexadecimal digits",
    ]
    let broken = mistakes { try Configuration.load(yaml: yaml, name: "f") }
    #expect(broken.count == 3, "mistakes before a syntax error are reported: \(broken)")
    let whole = mistakes { try Configuration.load(yaml: yaml + " }", name: "f") }
    #expect(whole == expected)
  }

  @Test(
    "a wrong network is reported with the reason",
    arguments: [
      ("10.0.0.1", "has no prefix length; one address is 10.0.0.1/32"),
      ("10.0.0.0/33", "has a prefix length that is not within 0…32"),
      ("10.0.0.0/", "has a prefix length that is not within 0…32"),
      ("10.0.0.0/+8", "has a prefix length that is not within 0…32"),
      ("10.0.0.1/8", "has bits set beyond its prefix length of 8"),
      ("fd00::1/64", "has bits set beyond its prefix length of 64"),
      ("10.0/8", "is not a network (CIDR, such as 10.0.0.0/8 or fd00::/8)"),
      ("example.org/8", "is not a network (CIDR, such as 10.0.0.0/8 or fd00::/8)"),
    ])
  func networks(text: String, message: String) {
    let yaml = "fetch: { deny_networks: [\"\(text)\"] }"
    #expect(
      mistakes { try Configuration.load(yaml: yaml, name: "f") } == [
        "f:1:26: fetch.deny_networks[0]: \"\(text)\" \(message)"
      ])
  }

  @Test(
    "a wrong host name or origin is detected",
    arguments: [
      "allow_hosts: [\"*\"]", "allow_hosts: [\"a.*.b\"]", "allow_hosts: [\"http://a\"]",
      "allow_hosts: [\"a..b\"]", "allow_hosts: [\"-a\"]", "allow_hosts: [\"bücher.example\"]",
    ])
  func hosts(entry: String) {
    #expect(mistakes { try Configuration.load(yaml: "fetch: { \(entry) }", name: "f") }.count == 1)
  }

  @Test(
    "an origin with more than scheme, host and port is detected",
    arguments: ["https://a/", "a", "ftp://a", "https://A", "https://a:0", "https://[::1", "null"])
  func origins(text: String) {
    let yaml = "server: { cors_origins: [\"\(text)\"] }"
    #expect(mistakes { try Configuration.load(yaml: yaml, name: "f") }.count == 1)
  }
}
