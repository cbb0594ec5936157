import API
import App
import Engine
import Fetch
import Foundation
import HTTP
import Logging
import Settings
import Testing

@Suite("A configuration file")
struct ConfigurationTests {
  @Test(
    "an empty file gives the defaults, which listen on loopback",
    arguments: ["", "# x\n", "fetch:\n"])
  func empty(yaml: String) throws {
    let configuration = try Configuration.load(yaml: yaml, name: "f.yaml")
    #expect(configuration == Configuration())
    #expect(configuration.http.host == "127.0.0.1")
  }

  @Test("two configurations differ if their values differ, even in secrets")
  func differs() throws {
    let keys = ["a", "b"].map { String(repeating: $0, count: 64) }
    let files = try keys.map {
      try Configuration.load(yaml: "view: { enabled: true, keys: [\($0)] }", name: "f.yaml")
    }
    func changed(_ one: Configuration, _ other: Configuration) -> [String] {
      Configuration.keys.filter { !$0.isEqual(one, other) }.map(\.path)
    }
    #expect(changed(files[0], files[1]) == ["view.keys"])
    #expect(changed(files[0], files[0]).isEmpty)
  }

  @Test("a file sets the keys that it names and no others")
  func sets() throws {
    let configuration = try Configuration.load(
      yaml: """
        server: { host: "::1", port: 0, cors_origins: ["https://a.example", "http://[::1]:80"] }
        fetch:
          timeout: 1.5s
          max_bytes: 1.5GB
          proxy: http://proxy:3128/
          allow_networks: [127.0.0.0/8, "::1/128", fc00::/7]
          allow_hosts: [example.org, "*.example.net", 10.0.0.1, "::1"]
          allow_ports: []
          allow_schemes: [https]
          user_agent: x/1 (<version>)
        auth: { rate_limit: { requests_per_second: 0.5 } }
        log: { level: debug, format: json }
        """, name: "f.yaml")
    var expected = Configuration()
    expected.http.host = "::1"
    expected.http.port = 0
    expected.api.corsOrigins = ["https://a.example", "http://[::1]:80"]
    expected.engine.timeout = .milliseconds(1500)
    expected.engine.maxBytes = 1_500_000_000
    expected.fetcher.proxy = "http://proxy:3128/"
    expected.fetcher.policy.allowNetworks = ["127.0.0.0/8", "::1/128", "fc00::/7"].compactMap {
      CIDR($0)
    }
    expected.fetcher.policy.allowHosts = ["example.org", "*.example.net", "10.0.0.1", "::1"]
    expected.fetcher.policy.allowPorts = []
    expected.fetcher.policy.allowSchemes = ["https"]
    expected.fetcher.userAgent = "x/1 (\(App.version))"
    expected.auth.rateLimit.requestsPerSecond = 0.5
    expected.log.level = .debug
    expected.log.format = .json
    #expect(configuration == expected)
  }

  @Test(
    "sizes are read with their units",
    arguments: [
      ("1", 1), ("32MiB", 32 << 20), ("\"32 MiB\"", 32 << 20), ("2KB", 2000), ("2KiB", 2048),
      ("1B", 1), ("3GiB", 3 << 30), ("0.5KiB", 512), ("0.1KiB", 102), ("3.25MB", 3_250_000),
    ])
  func sizes(text: String, bytes: Int) throws {
    let yaml = "fetch: { max_bytes: \(text) }"
    #expect(try Configuration.load(yaml: yaml, name: "f").engine.maxBytes == bytes)
  }

  @Test(
    "durations are read with their units",
    arguments: [
      ("1", 1000), ("1ms", 1), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000),
      ("1d", 86_400_000), ("0.25h", 900_000), ("90 s", 90_000),
    ])
  func durations(text: String, milliseconds: Int) throws {
    let yaml = "jobs: { retention: \(text), max_retention: \(text) }"
    let configuration = try Configuration.load(yaml: yaml, name: "f")
    #expect(configuration.engine.retention == .milliseconds(milliseconds))
    #expect(configuration.api.limits.maxRetention == .milliseconds(milliseconds))
  }

  @Test("a file is given by its path and must be readable")
  func files() throws {
    let path = NSTemporaryDirectory() + "imagefetch-\(UUID()).yaml"
    try "fetch:\n  timeout: 0s\n".write(toFile: path, atomically: true, encoding: .utf8)
    defer { try? FileManager.default.removeItem(atPath: path) }
    #expect(
      mistakes { try Configuration.load(file: path) } == [
        "\(path):2:12: fetch.timeout: \"0s\" is not within 1ms…10m"
      ])
    #expect(
      mistakes { try Configuration.load(file: path + "x") } == [
        "\(path)x: cannot be read: No such file or directory"
      ])
    #expect(
      mistakes { try Configuration.load(file: "/dev/zero") } == [
        "/dev/zero: is larger than 1MiB"
      ])
  }

  @Test("a configuration prints as YAML that reads back as the same")
  func effective() throws {
    var configuration = Configuration()
    configuration.engine.timeout = .nanoseconds(1_500_000)
    configuration.engine.maxBytes = 1_500_001
    configuration.engine.requestsPerSecondPerOrigin = 0.25
    configuration.fetcher.userAgent = "a \"b\" \\c"
    configuration.fetcher.policy.denyHosts = ["*.example.org", "::1", "1.2"]
    configuration.engine.cache.defaultTTL = .zero
    configuration.storage.path = "/tmp/null"
    let text = configuration.effective()
    #expect(try Configuration.load(yaml: text, name: "f") == configuration)
    #expect(text.contains("  retry_backoff:\n    initial: 500ms\n    maximum: 30s\n"))
    #expect(text.contains("  max_bytes: 1500001B\n"))
  }

  @Test("each key has its own variable")
  func names() {
    let names = Set(Configuration.keys.map(\.environmentName))
    #expect(names.count == Configuration.keys.count)
    #expect(names.contains("IMAGEFETCH_FETCH_MAX_BYTES"))
    #expect(names.contains("IMAGEFETCH_JOBS_RETRY_BACKOFF_INITIAL"))
  }
}

/// Returns the lines that loading fails with. Empty if it succeeds.
func mistakes(_ load: () throws -> Configuration) -> [String] {
  do {
    _ = try load()
    return []
  } catch let error as Configuration.Mistakes {
    return error.all.map(\.description)
  } catch {
    Issue.record(error)
    return []
  }
}
