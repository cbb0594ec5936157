import Foundation
import TestSupport
import Testing

@Suite("Image downloads from the dashboard", .browser, .timeLimit(.minutes(15)))
struct DashboardZipTests {
  /// The contents of an archive as another program reads them.
  private struct Found: Decodable {
    let damaged: String?
    let images: [String: Data]
  }

  private static let reader = """
    import base64, json, sys, zipfile
    archive = zipfile.ZipFile(sys.argv[1])
    images = {name: base64.b64encode(archive.read(name)).decode() for name in archive.namelist()}
    print(json.dumps({"damaged": archive.testzip(), "images": images}))
    """

  @Test("selected images become one zip with unchanged bytes and unique names, without failures")
  func zip() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      let photo = Fixtures.image("photo.jpg")
      page.origin.on("/one/cat.png", .ok(Fixtures.png))
      page.origin.on("/two/cat.png", .ok(Fixtures.smallPNG))
      page.origin.on("/Katze-%C3%BC.jpg", .ok(photo))
      for path in ["/one/cat.png", "/two/cat.png", "/Katze-%C3%BC.jpg", "/none.png"] {
        _ = try await page.service.finished(page.service.submit(url: page.origin.url(path)))
      }
      try await page.sees(
        "cards.length === 4 && !cards.some((one) => one.dataset.phase === 'loading')")
      // The download is captured where it begins.
      try await page.run(
        """
        window.zip = null;
        const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => {
          if (blob.type === 'application/zip') {
            const reader = new FileReader();
            reader.onload = () => { window.zip = reader.result.split(',')[1]; };
            reader.readAsDataURL(blob);
          }
          return make(blob);
        };
        """)
      try await page.browser.click("#show-all")
      try await page.browser.click("#all [data-export=zip]")
      let base64 = try #require(try await page.sees("window.zip") as? String)
      try await page.sees("!$('zip').open")
      let file = page.service.folder + "/images.zip"
      try #require(Data(base64Encoded: base64)).write(to: URL(fileURLWithPath: file))
      let output = try await Shell.run(
        "/usr/bin/python3 - '\(file)' <<'END'\n\(Self.reader)\nEND", in: page.service.folder)
      let found = try JSONDecoder().decode(Found.self, from: Data(output.utf8))
      #expect(found.damaged == nil)
      let names = found.images.keys.sorted()
      #expect(names == ["Katze-ü.jpg", "cat-2.png", "cat.png"])
      #expect(found.images["Katze-ü.jpg"] == Data(photo))
      let cats = [found.images["cat.png"], found.images["cat-2.png"]]
      #expect(Set(cats) == [Data(Fixtures.png), Data(Fixtures.smallPNG)])
    }
  }

  @Test("no image is requested if no selected job has one")
  func none() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      _ = try await page.service.finished(
        page.service.submit(url: page.origin.url("/none.png")))
      try await page.sees("is('none.png', 'failure')")
      try await page.browser.click("#show-all")
      try await page.browser.click("#all [data-export=zip]")
      try await page.sees("text($('toast')) === 'None of these jobs has an image.'")
    }
  }
}
