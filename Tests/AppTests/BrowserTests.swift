import Foundation
import TestSupport
import Testing

@Suite("A browser", .timeLimit(.minutes(3)))
struct BrowserTests {
  @Test("shows an image that the service fetched")
  func image() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/photo.jpg", .ok(Fixtures.jpeg))
    try await withService { service in
      let id = try await service.submit(url: origin.url("/photo.jpg"))
      _ = try await service.finished(id)
      let browser = try await Browser()
      try await browser.open("\(service.base)/jobs/\(id)/image")
      let size = try await browser.run(
        "const image = document.images[0]; return [image.naturalWidth, image.naturalHeight]")
      #expect(size as? [Int] == [480, 320])
      await browser.close()
    }
  }
}
