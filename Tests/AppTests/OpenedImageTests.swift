import Foundation
import TestSupport
import Testing

@Suite("An image that a browser opens directly", .browser, .timeLimit(.minutes(15)))
struct OpenedImageTests {
  @Test("the image is shown as without the security policy, and nothing is blocked")
  func shown() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.png))
    try await withService { service in
      let id = try await service.submit(url: origin.url("/cat.png"))
      #expect(try await service.finished(id)["phase"] as? String == "success")
      let browser = try await Browser()
      try await browser.open(origin.url("/cat.png"))
      let expected = try await browser.screenshot()
      try await browser.open(service.base + "/jobs/\(id)/image")
      #expect(try await browser.screenshot() == expected)
      let complaints = try await browser.complaints().filter { $0.contains("Content Security") }
      #expect(complaints == [])
      await browser.close()
    }
  }
}
