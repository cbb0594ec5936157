public import Foundation
internal import Synchronization

/// A headless Chromium, driven by WebDriver (https://www.w3.org/TR/webdriver2/). It reaches nothing but 127.0.0.1.
///
/// Chromium takes longer to start than most tests of a page take. So a browser that was closed waits for the next test, which
/// gets an empty one: a new tab, without what pages stored, cached or logged.
public final class Browser: Sendable {
  /// Why the browser didn't do as asked, in WebDriver's words.
  public struct Failure: Error, CustomStringConvertible {
    /// The error and its message.
    public let description: String
  }

  /// Whether the distribution has a package of Chromium, or one is installed nevertheless. Ubuntu's is a stub that needs
  /// the snap store.
  public static let isAvailable: Bool = {
    let release = try? String(contentsOfFile: "/etc/os-release", encoding: .utf8)
    let isUbuntu = release?.split(separator: "\n").contains("ID=ubuntu") == true
    return !isUbuntu || [program, driverProgram].allSatisfy(FileManager.default.isExecutableFile)
  }()

  private static let program = "/usr/bin/chromium"
  private static let driverProgram = "/usr/bin/chromedriver"

  /// A driver, and its session with a browser.
  private struct Process {
    let driver: ChildProcess
    let base: String
    let session: String

    /// The command that ends the browser.
    var end: String { "curl --silent --max-time 20 --request DELETE \(base)/session/\(session)" }
  }

  private static let idle = Mutex<[Process]>([])
  private let process: Process
  private let isClosed = Mutex(false)

  /// Takes a browser that waits for the next test, or starts one.
  ///
  /// - Parameters:
  ///   - width: of the page, in CSS pixels.
  ///   - height: of the page, in CSS pixels.
  public init(width: Int = 1280, height: Int = 900) async throws {
    if let idle = Self.idle.withLock({ $0.popLast() }) {
      process = idle
    } else {
      process = try await Self.start()
    }
    try await emulate(width: width, height: height, isDark: false)
  }

  private static func start() async throws -> Process {
    var tries = 0
    while true {
      tries += 1
      let output = Pipe()
      let driver = try ChildProcess(
        [driverProgram, "--port=0"], output: .pipe(output), errors: .null)
      do {
        let base = try await address(in: output)
        let process = Process(driver: driver, base: base, session: try await open(at: base))
        try endWithTests(process)
        return process
      } catch {
        driver.signal(SIGKILL)
        // Drivers that start at the same time may want the same port, and then one of them gives up.
        guard tries < 5 else { throw error }
      }
    }
  }

  /// A test that failed has not closed it.
  deinit {
    if !isClosed.withLock({ $0 }) { Self.end(process) }
  }

  /// Has the browser end when the driver or these tests end, however they do.
  private static func endWithTests(_ process: Process) throws {
    let script = """
      while kill -0 "$0" && kill -0 \(getpid()); do sleep 1; done; \(process.end); kill -9 "$0"
      """
    _ = try ChildProcess(
      ["/bin/sh", "-c", script, "\(process.driver.id)"], input: .null, output: .null, errors: .null)
  }

  /// Nothing here may wait: another process asks the driver to end the browser.
  private static func end(_ process: Process) {
    _ = try? ChildProcess(
      ["/bin/sh", "-c", "\(process.end); kill -9 \"$0\"", "\(process.driver.id)"], input: .null,
      output: .null, errors: .null)
  }

  /// Leaves the browser to the next test, empty.
  public func close() async {
    let wasClosed = isClosed.withLock { isClosed in
      defer { isClosed = true }
      return isClosed
    }
    if wasClosed { return }
    do {
      try await empty()
      Self.idle.withLock { $0.append(process) }
    } catch { Self.end(process) }
  }

  /// Closes all tabs but a new one, and removes what pages stored, cached and logged.
  private func empty() async throws {
    let origin = try await run("return location.origin") as? String ?? ""
    if origin.hasPrefix("http") {
      try await devTools(
        "Storage.clearDataForOrigin", ["origin": origin, "storageTypes": "all"])
    }
    try await devTools("Network.clearBrowserCache", [:])
    let old = try await command("GET", "/window/handles") as? [String] ?? []
    let tab = try await command("POST", "/window/new", ["type": "tab"]) as? [String: Any]
    for handle in old {
      try await command("POST", "/window", ["handle": handle])
      try await command("DELETE", "/window")
    }
    try await command("POST", "/window", ["handle": tab?["handle"] ?? ""])
    _ = try await complaints()
  }

  /// Goes to a page and waits until it is loaded.
  public func open(_ url: String) async throws {
    try await command("POST", "/url", ["url": url])
  }

  /// Runs the body of a JavaScript function on the page: its `arguments` are those given, a promise that it returns is
  /// waited for, for up to 60 s.
  ///
  /// - Returns: what JSON can say of what it returned; nil for null and undefined.
  @discardableResult
  public func run(_ body: String, _ arguments: [Any] = []) async throws -> Any? {
    let value = try await command(
      "POST", "/execute/sync", ["script": body, "args": arguments])
    return value is NSNull ? nil : value
  }

  /// Clicks the middle of the first element that the CSS selector finds, as a mouse would.
  public func click(_ selector: String) async throws {
    try await command("POST", "/element/\(element(selector))/click", [:])
  }

  /// Types into the first element that the CSS selector finds; a file's path into a file input chooses it.
  public func type(_ text: String, into selector: String) async throws {
    try await command("POST", "/element/\(element(selector))/value", ["text": text])
  }

  /// Presses a key wherever the focus is: a character, or one of WebDriver's codes for others.
  public func press(_ key: String) async throws {
    let presses = ["keyDown", "keyUp"].map { ["type": $0, "value": key] }
    let keyboard: [String: Any] = ["type": "key", "id": "keyboard", "actions": presses]
    try await command("POST", "/actions", ["actions": [keyboard]])
  }

  /// Makes the page another size, or shows it as to people who like it dark.
  public func emulate(width: Int, height: Int, isDark: Bool) async throws {
    let metrics: [String: Any] = [
      "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
    ]
    try await devTools("Emulation.setDeviceMetricsOverride", metrics)
    let scheme = ["name": "prefers-color-scheme", "value": isDark ? "dark" : "light"]
    try await devTools("Emulation.setEmulatedMedia", ["features": [scheme]])
  }

  /// The page as it is seen, a PNG.
  public func screenshot() async throws -> Data {
    let value = try await command("GET", "/screenshot") as? String
    guard let data = value.flatMap({ Data(base64Encoded: $0) }) else {
      throw Failure(description: "no screenshot")
    }
    return data
  }

  /// What the page complained of since the last call: errors of scripts, loads that failed or were refused.
  public func complaints() async throws -> [String] {
    let entries = try await command("POST", "/se/log", ["type": "browser"]) as? [[String: Any]]
    return (entries ?? []).compactMap { $0["message"] as? String }
  }

  /// The name of the first element that the selector finds, waited for up to 20 s.
  private func element(_ selector: String) async throws -> String {
    let search = ["using": "css selector", "value": selector]
    let found = try await command("POST", "/element", search) as? [String: Any]
    guard let name = found?.values.first as? String else {
      throw Failure(description: "\(selector): no element")
    }
    return name
  }

  private func devTools(_ method: String, _ parameters: [String: Any]) async throws {
    try await command(
      "POST", "/goog/cdp/execute", ["cmd": method, "params": parameters])
  }

  @discardableResult
  private func command(
    _ method: String, _ path: String, _ body: [String: Any]? = nil
  ) async throws -> Any {
    try await Self.send(method, process.base + "/session/\(process.session)" + path, body)
  }
}

extension Browser {
  /// Where the driver says that it is, once it does.
  private static func address(in pipe: Pipe) async throws -> String {
    let output = Mutex("")
    for try await line in lines(of: pipe.fileHandleForReading) {
      output.withLock { $0 += line + "\n" }
      if let match = line.firstMatch(of: #/started successfully on port (\d+)/#) {
        return "http://127.0.0.1:\(match.1)"
      }
    }
    throw Failure(description: "the driver doesn't start: \(output.withLock { $0 })")
  }

  private static func lines(of handle: FileHandle) -> AsyncStream<String> {
    AsyncStream { continuation in
      // A thread of its own reads: the shared ones must not wait for another process.
      Thread.detachNewThread {
        var rest = Data()
        while true {
          let data = handle.availableData
          if data.isEmpty { break }
          rest += data
          while let end = rest.firstIndex(of: 10) {
            continuation.yield(String(decoding: rest[rest.startIndex..<end], as: UTF8.self))
            rest = Data(rest[(end + 1)...])
          }
        }
        continuation.finish()
      }
    }
  }

  private static func open(at base: String) async throws -> String {
    let options: [String: Any] = [
      "binary": program,
      "args": [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--disable-component-update", "--no-first-run",
        "--no-proxy-server", "--hide-scrollbars", "--window-size=1280,900",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
      ],
    ]
    let capabilities: [String: Any] = [
      "browserName": "chrome", "goog:chromeOptions": options,
      "goog:loggingPrefs": ["browser": "ALL"],
      "timeouts": ["implicit": 20_000, "script": 60_000, "pageLoad": 60_000],
    ]
    let answer = try await send(
      "POST", base + "/session", ["capabilities": ["alwaysMatch": capabilities]])
    guard let session = (answer as? [String: Any])?["sessionId"] as? String else {
      throw Failure(description: "no session: \(answer)")
    }
    return session
  }

  /// By curl: the driver's header fields have no space behind their colon, which `URLSession` on Linux doesn't take.
  @discardableResult
  private static func send(
    _ method: String, _ url: String, _ body: [String: Any]? = nil
  ) async throws -> Any {
    var arguments = ["curl", "--silent", "--max-time", "120", "--request", method, url]
    if body != nil {
      arguments += ["--header", "Content-Type: application/json", "--data-binary", "@-"]
    }
    let input = try body.map { try JSONSerialization.data(withJSONObject: $0) }
    let said = try await ChildProcess.run(arguments, input: input ?? Data()).output
    let answer = try? JSONSerialization.jsonObject(with: said) as? [String: Any]
    guard let value = answer?["value"] else { throw Failure(description: "no answer") }
    if let failure = value as? [String: Any], let error = failure["error"] as? String {
      throw Failure(description: "\(error): \(failure["message"] ?? "")")
    }
    return value
  }
}
