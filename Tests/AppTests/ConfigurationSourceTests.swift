import App
import Engine
import Fetch
import HTTP
import Jobs
import Testing

@Suite("The sources of the configuration")
struct ConfigurationSourceTests {
  @Test("flags override the environment, which overrides the file, which overrides the defaults")
  func precedence() throws {
    let yaml = "server: { port: 1, threads: 1, max_connections: 1 }"
    let environment = ["IMAGEFETCH_SERVER_PORT": "2", "IMAGEFETCH_SERVER_THREADS": "2"]
    let flags = [Configuration.Flag(name: "--port", key: "server.port", value: "3")]
    let server = try Configuration.load(
      yaml: yaml, name: "f", environment: environment, flags: flags
    ).http
    #expect([server.port, server.threads, server.maxConnections] == [3, 2, 1])
    #expect(server.host == "127.0.0.1")
  }

  @Test("default stores can be given by name instead of a URL")
  func usual() throws {
    let configuration = try Configuration.load(
      yaml: "storage: { jobs: sqlite, images: files }", name: "f")
    #expect(configuration == Configuration())
    #expect(configuration.effective().contains("  jobs: sqlite\n"))
    #expect(configuration.effective().contains("  images: files\n"))
  }

  @Test(
    "AWS_REGION is the object store's region unless a key sets one",
    arguments: [
      ("s3://pics/p", "", "", "eu-west-1"), ("s3://pics/p", "eu-1", "", "eu-1"),
      ("s3://pics/p", "eu-1", "eu-2", "eu-2"), ("files", "", "", "us-east-1"),
    ])
  func awsRegion(images: String, file: String, variable: String, region: String) throws {
    let s3 = file.isEmpty ? "" : ", s3: { region: \(file) }"
    var environment = ["AWS_REGION": "eu-west-1"]
    if !variable.isEmpty { environment["IMAGEFETCH_STORAGE_S3_REGION"] = variable }
    let configuration = try Configuration.load(
      yaml: "storage: { images: \(images)\(s3) }", name: "f", environment: environment)
    #expect(configuration.storage.s3.region == region)
  }

  @Test(
    "integers are decimal, hexadecimal or octal, as in YAML 1.2",
    arguments: [("8080", 8080), ("0x1F90", 8080), ("0o17620", 8080), ("010", 10), ("+1", 1)])
  func integers(text: String, port: Int) throws {
    #expect(
      try Configuration.load(yaml: "server: { port: \(text) }", name: "f").http.port == port)
  }

  @Test("a variable sets a key, with commas between list elements")
  func variables() throws {
    let hash = String(repeating: "12", count: 32)
    let configuration = try Configuration.load(environment: [
      "IMAGEFETCH_FETCH_ALLOW_PORTS": "80, 8080,",
      "IMAGEFETCH_FETCH_ALLOW_HOSTS": "a.example,*.b.example",
      "IMAGEFETCH_SERVER_CORS_ORIGINS": "",
      "IMAGEFETCH_FETCH_PROXY": "",
      "IMAGEFETCH_STORAGE_PATH": "123",
      "IMAGEFETCH_CACHE_ENABLED": "false",
      "IMAGEFETCH_JOBS_RETRY_BACKOFF_INITIAL": "250ms",
      "IMAGEFETCH_VIEW_KEYS": "\(hash),\(hash)",
      "IMAGEFETCH_AUTH_TOKENS":
        "[{\"name\": \"a\", \"sha256\": \"\(hash)\", \"scopes\": [\"jobs\"]}]",
      "PATH": "/bin",
    ])
    #expect(configuration.fetcher.policy.allowPorts == [80, 8080])
    #expect(configuration.fetcher.policy.allowHosts == ["a.example", "*.b.example"])
    #expect(configuration.fetcher.proxy == nil)
    #expect(configuration.storage.path == "123")
    #expect(!configuration.engine.cache.isEnabled)
    #expect(configuration.engine.retry.initialBackoff == .milliseconds(250))
    #expect(configuration.view.keys.count == 2)
    #expect(configuration.auth.tokens.map(\.name) == ["a"])
  }

  @Test(
    "a wrong variable is reported by its name",
    arguments: [
      ("FETCH_TIMEOUT", "x", "\"x\" is not a duration (ms, s, m, h, d)"),
      ("FETCH_TIMEOUT", "", "null is not a duration (ms, s, m, h, d)"),
      ("FETCH_ALLOW_PORTS", "80,x", "[1]: \"x\" is not a whole number"),
      (
        "AUTH_TOKENS", "[{name: a}",
        "2:1: did not find expected ',' or ']' while parsing a flow sequence"
      ),
      ("AUTH_TOKENS", "[{name: view}]", "[0].name: \"view\" is reserved"),
      ("FETCH_TIMOUT", "1s", "unknown variable, did you mean IMAGEFETCH_FETCH_TIMEOUT?"),
      ("WIBBLE", "1s", "unknown variable"),
      (
        "SERVER_HOST", "0.0.0.0",
        "\"0.0.0.0\" can be reached from other machines: set auth.tokens, or auth.disabled: true to be open to everyone"
      ),
    ])
  func wrongVariable(name: String, value: String, message: String) {
    let name = "IMAGEFETCH_" + name
    let lines = mistakes { try Configuration.load(environment: [name: value]) }
    #expect(lines.first == "\(name): \(message)")
  }

  @Test("a wrong flag is reported by its name")
  func wrongFlag() {
    let flags = [Configuration.Flag(name: "--port", key: "server.port", value: "http")]
    let lines = mistakes { try Configuration.load(flags: flags) }
    #expect(lines == ["--port: \"http\" is not a whole number"])
  }

  @Test("variables that Kubernetes sets for a Service named imagefetch are ignored")
  func kubernetes() {
    let names = [
      "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8080_TCP",
      "PORT_8080_TCP_ADDR", "PORT_8080_TCP_PORT", "PORT_8080_TCP_PROTO",
    ]
    let environment = Dictionary(
      uniqueKeysWithValues: names.map { ("IMAGEFETCH_" + $0, "tcp://x") })
    #expect(mistakes { try Configuration.load(environment: environment) }.isEmpty)
  }

  @Test("keys from a source with higher priority replace a file of keys")
  func keysOverFile() throws {
    let key = String(repeating: "34", count: 16)
    let yaml = "view: { keys_file: /dev/null }"
    let configuration = try Configuration.load(
      yaml: yaml, name: "f", environment: ["IMAGEFETCH_VIEW_KEYS": key])
    #expect(configuration.view.keys.count == 1)
    #expect(configuration.view.keysFile == nil)
    let both = "view: { keys_file: /dev/null, keys: [\(key)] }"
    #expect(
      mistakes { try Configuration.load(yaml: both, name: "f") } == [
        "f:1:20: view.keys_file: is set together with view.keys; set only one of them"
      ])
  }
}
