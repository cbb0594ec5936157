import App
import Engine
import Foundation
import HTTP
import Testing

@Suite("The command line")
struct ConfigurationCommandTests {
  @Test(
    "the exit status shows whether the user, the operator or the service is at fault",
    arguments: [
      (["--help"], 0, "SUBCOMMANDS", ""), (["--version"], 0, App.version, ""),
      (["version"], 0, "imagefetch \(App.version)", ""), (["version"], 0, "libyaml 0.", ""),
      (["version"], 0, "dav1d", ""), (["version"], 0, "libwebp 1.", ""),
      (["version"], 0, "libbrotli 1.", ""), (["version"], 0, "zlib 1.", ""),
      (["version"], 0, "liblcms2 2.", ""),
      (["serve", "--help"], 0, "--config", ""), (["check", "--help"], 0, "--config", ""),
      (["wibble"], 2, "", "Usage: imagefetch"), (["check", "x"], 2, "", "x"),
      (["serve", "--wibble"], 2, "", "--wibble"), (["version", "x"], 2, "", "x"),
      (["check", "--config", "/nowhere"], 1, "", "/nowhere: cannot be read: No such file"),
      (["serve", "--config", "/nowhere"], 1, "", "/nowhere: cannot be read: No such file"),
      (["serve", "--port", "abc"], 2, "", "'abc' is invalid for '--port"),
      (["serve", "--port", "70000"], 2, "", "'70000' is invalid for '--port"),
      (["serve", "--port"], 2, "", "--port"),
      (["serve", "--host", "0.0.0.0"], 1, "", "--host: \"0.0.0.0\" can be reached"),
    ] as [([String], Int32, String, String)])
  func status(arguments: [String], status: Int32, output: String, error: String) throws {
    let run = try CommandRun(arguments)
    #expect(run.status == status)
    #expect(output.isEmpty ? run.output.isEmpty : run.output.contains(output))
    #expect(error.isEmpty ? run.error.isEmpty : run.error.contains(error))
  }

  @Test("check prints all mistakes of a file, one per line, or the resulting configuration")
  func check() throws {
    let path = NSTemporaryDirectory() + "imagefetch-\(UUID()).yaml"
    defer { try? FileManager.default.removeItem(atPath: path) }
    try "fetch:\n  timeout: 0s\n  x: 1\n".write(toFile: path, atomically: true, encoding: .utf8)
    let wrong = try CommandRun(["check", "--config", path], ["IMAGEFETCH_X": "1"])
    #expect(wrong.status == 1)
    #expect(wrong.output.isEmpty)
    #expect(
      wrong.error == """
        \(path):2:12: fetch.timeout: "0s" is not within 1ms…10m
        \(path):3:3: fetch.x: unknown key
        IMAGEFETCH_X: unknown variable

        """)
    try "fetch: { timeout: 2s }\n".write(toFile: path, atomically: true, encoding: .utf8)
    let right = try CommandRun(["check", "--config", path], ["IMAGEFETCH_SERVER_PORT": "0"])
    var expected = Configuration()
    expected.engine.timeout = .seconds(2)
    expected.http.port = 0
    #expect(right.status == 0)
    #expect(right.output == expected.effective())
    #expect(right.error.isEmpty)
  }

  @Test("check without a file checks the environment and the defaults")
  func checkEnvironment() throws {
    let defaults = try CommandRun(["check"])
    #expect(defaults.status == 0 && defaults.output == Configuration().effective())
    let variables = ["IMAGEFETCH_SERVER_HOST": "0.0.0.0", "IMAGEFETCH_FETCH_TIMEOUT": "2s"]
    let open = try CommandRun(["check"], variables)
    #expect(open.status == 1 && open.output.isEmpty)
    #expect(open.error.contains("IMAGEFETCH_SERVER_HOST: "), "\(open)")
    let allowed = try CommandRun(
      ["check"], variables.merging(["IMAGEFETCH_AUTH_DISABLED": "true"]) { $1 })
    #expect(allowed.status == 0 && allowed.output.contains("timeout: 2s"), "\(allowed)")
  }

  @Test("the health check works without tokens, for a service on a public address")
  func health() async throws {
    try await withService { service in
      let port = try #require(URL(string: service.base)?.port)
      let variables = ["IMAGEFETCH_SERVER_HOST": "0.0.0.0", "IMAGEFETCH_SERVER_PORT": "\(port)"]
      #expect(try CommandRun(["health"], variables).status == 0)
    }
    #expect(try CommandRun(["health"], ["IMAGEFETCH_SERVER_PORT": "1"]).status == 1)
  }
}
