package import Foundation
internal import Synchronization

/// A headless Chromium, controlled through WebDriver (https://www.w3.org/TR/webdriver2/). It can reach only 127.0.0.1.
///
/// Chromium takes longer to start than most tests of a page. So a closed browser is kept for the next test, which gets a new
/// tab without the data that pages stored, cached or logged.
package final class Browser: Sendable {
  /// Why the browser failed, in WebDriver's words.
  package struct Failure: Error, CustomStringConvertible {
    /// The error and its message.
    package let description: String
  }

  /// Whether the distribution packages Chromium, or Chromium is installed. Ubuntu's package only installs from the snap
  /// store.
  package static let isAvailable: Bool = {
    let release = try? String(contentsOfFile: "/etc/os-release", encoding: .utf8)
    let isUbuntu = release?.split(separator: "\n").contains("ID=ubuntu") == true
    return !isUbuntu || [program, driverProgram].allSatisfy(FileManager.default.isExecutableFile)
  }()

  private static let program = "/usr/bin/chromium"
  private static let driverProgram = "/usr/bin/chromedriver"

  /// A driver and its session with a browser.
  private struct Process {
    let driver: ChildProcess
    let base: String
    let session: String

    /// The command that closes the browser.
    var end: String { "curl --silent --max-time 20 --request DELETE \(base)/session/\(session)" }
  }

  private static let idle = Mutex<[Process]>([])
  private let process: Process
  private let isClosed = Mutex(false)

  /// Takes a browser that is kept for the next test, or starts one.
  ///
  /// - Parameters:
  ///   - width: the page's width in CSS pixels.
  ///   - height: the page's height in CSS pixels.
  package init(width: Int = 1280, height: Int = 900) async throws {
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
        // Drivers that start at the same time may choose the same port. One of them then fails.
        guard tries < 5 else { throw error }
      }
    }
  }

  /// A failed test does not close its browser.
  deinit {
    if !isClosed.withLock({ $0 }) { Self.end(process) }
  }

  /// Makes the browser end when the driver or the tests end, in whatever way.
  private static func endWithTests(_ process: Process) throws {
    let script = """
      while kill -0 "$0" && kill -0 \(getpid()); do sleep 1; done; \(process.end); kill -9 "$0"
      """
    _ = try ChildProcess(
      ["/bin/sh", "-c", script, "\(process.driver.id)"], input: .null, output: .null, errors: .null)
  }

  /// Must not block: a separate process asks the driver to close the browser.
  private static func end(_ process: Process) {
    _ = try? ChildProcess(
      ["/bin/sh", "-c", "\(process.end); kill -9 \"$0\"", "\(process.driver.id)"], input: .null,
      output: .null, errors: .null)
  }

  /// Empties the browser and keeps it for the next test.
  package func close() async {
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

  /// Closes all tabs except a new one, and removes what pages stored, cached and logged.
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

  /// Opens a page and waits until it is loaded.
  package func open(_ url: String) async throws {
    try await command("POST", "/url", ["url": url])
  }

  /// Runs the body of a JavaScript function on the page with the given `arguments`. If it returns a promise, waits for it, up to
  /// 60 s.
  ///
  /// - Returns: The result as a JSON value; nil for null and undefined.
  @discardableResult
  package func run(_ body: String, _ arguments: [Any] = []) async throws -> Any? {
    let value = try await command(
      "POST", "/execute/sync", ["script": body, "args": arguments])
    return value is NSNull ? nil : value
  }

  /// Clicks the center of the first element that matches the CSS selector.
  package func click(_ selector: String) async throws {
    try await command("POST", "/element/\(element(selector))/click", [:])
  }

  /// Types into the first element that matches the CSS selector. For a file input, the text is the path of the file to choose.
  package func type(_ text: String, into selector: String) async throws {
    try await command("POST", "/element/\(element(selector))/value", ["text": text])
  }

  /// Presses a key on the focused element: a character, or one of WebDriver's codes for other keys.
  package func press(_ key: String) async throws {
    let presses = ["keyDown", "keyUp"].map { ["type": $0, "value": key] }
    let keyboard: [String: Any] = ["type": "key", "id": "keyboard", "actions": presses]
    try await command("POST", "/actions", ["actions": [keyboard]])
  }

  /// Changes the page's size or its color scheme (light or dark).
  package func emulate(width: Int, height: Int, isDark: Bool) async throws {
    let metrics: [String: Any] = [
      "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
    ]
    try await devTools("Emulation.setDeviceMetricsOverride", metrics)
    let scheme = ["name": "prefers-color-scheme", "value": isDark ? "dark" : "light"]
    try await devTools("Emulation.setEmulatedMedia", ["features": [scheme]])
  }

  /// A screenshot of the page as PNG.
  package func screenshot() async throws -> Data {
    let value = try await command("GET", "/screenshot") as? String
    guard let data = value.flatMap({ Data(base64Encoded: $0) }) else {
      throw Failure(description: "no screenshot")
    }
    return data
  }

  /// Errors that the page logged since the last call: script errors, and loads that failed or were refused.
  package func complaints() async throws -> [String] {
    let entries = try await command("POST", "/se/log", ["type": "browser"]) as? [[String: Any]]
    return (entries ?? []).compactMap { $0["message"] as? String }
  }

  /// Returns the first element that matches the selector. Waits up to 20 s for it.
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
  /// Waits until the driver prints its address, and returns it.
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
      // Read on a separate thread, because Swift's shared threads must not wait for another process.
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

  /// Uses curl, because the driver sends header fields without a space after the colon, which `URLSession` on Linux rejects.
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
