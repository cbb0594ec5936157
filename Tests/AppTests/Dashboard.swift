import Digests
import Foundation
import TestSupport
import Testing

extension Trait where Self == ConditionTrait {
  /// Skips a test that needs a browser if there is none.
  static var browser: Self {
    .enabled(if: Browser.isAvailable, "Ubuntu has no package of Chromium")
  }
}

/// The dashboard of a service, in a browser.
struct Dashboard {
  let service: RunningService
  let origin: ScriptedOrigin
  let browser: Browser

  /// Settings with a token `web` for jobs and a token `root` for admins.
  static var withTokens: [String: String] {
    let tokens = [("web", "jobs"), ("root", "admin")].map { secret, scope in
      let digest = SHA256.hash(data: Array(secret.utf8)).map {
        String($0 >> 4, radix: 16) + String($0 & 15, radix: 16)
      }
      return "{name: \(secret), sha256: \"\(digest.joined())\", scopes: [\(scope)]}"
    }
    return ["IMAGEFETCH_AUTH_TOKENS": "[" + tokens.joined(separator: ", ") + "]"]
  }

  struct TimedOut: Error, CustomStringConvertible { let description: String }

  /// Names for scripts: `cards` are the cards on the page, `card(name)` is a job's card, `text(element)` is
  /// its text.
  private static let prelude = """
    const cards = [...document.querySelectorAll('.card')];
    const text = (element) => element?.innerText ?? '';
    const card = (name) => cards.find((one) => text(one.querySelector('.name')) === name);
    const is = (name, phase) => card(name)?.dataset.phase === phase;
    const shows = (name) => card(name)?.querySelector('.image.loaded')?.naturalWidth > 0;
    const $ = (id) => document.getElementById(id);

    """

  /// Waits until a JavaScript expression is true on the page.
  /// - Returns: The expression's value.
  @discardableResult
  func sees(
    _ expression: String, _ location: SourceLocation = #_sourceLocation
  ) async throws -> Any {
    let script = """
      const end = performance.now() + 50000;
      return new Promise((resolve) => {
        (function check() {
          \(Self.prelude)
          const value = \(expression);
          if (value) resolve({ value });
          else if (performance.now() > end) resolve({ page: document.body.innerText });
          else setTimeout(check, 20);
        })();
      });
      """
    let result = try await browser.run(script) as? [String: Any]
    if let value = result?["value"] { return value }
    Issue.record("not seen: \(expression)", sourceLocation: location)
    throw TimedOut(description: "\(expression)\n\(result?["page"] ?? "")")
  }

  /// Runs a script that can use the names of ``sees(_:_:)``.
  @discardableResult
  func run(_ script: String, _ arguments: [Any] = []) async throws -> Any? {
    try await browser.run(Self.prelude + script, arguments)
  }

  /// Clicks a button on a job's card.
  func click(_ action: String, of name: String) async throws {
    try await run("card('\(name)').querySelector('[data-do=\(action)]').click()")
  }

  /// The page's console errors, except failed requests, which the page shows itself.
  func complaints() async throws -> [String] {
    try await browser.complaints().filter { !$0.contains("Failed to load resource") }
  }
}

/// Opens the dashboard of a new service with an origin. Fails if the page logged an error.
func withDashboard(
  _ settings: [String: String] = [:], _ body: (Dashboard) async throws -> Void
) async throws {
  let origin = try ScriptedOrigin()
  defer { origin.stop() }
  // The service does not wait for jobs that are still loading at the end of the test.
  let quick = ["IMAGEFETCH_SERVER_DRAIN_TIMEOUT": "0s"]
  try await withService(quick.merging(settings) { $1 }) { service in
    let browser = try await Browser()
    let dashboard = Dashboard(service: service, origin: origin, browser: browser)
    do {
      try await browser.open(service.base + "/")
      try await body(dashboard)
      #expect(try await dashboard.complaints() == [])
    } catch {
      await browser.close()
      throw error
    }
    await browser.close()
  }
}
