import Foundation
import TestSupport
import Testing

/// Runs the commands that the README and docs/clients.md tell readers to type.
@Suite("The README's commands", .timeLimit(.minutes(15)))
struct ReadmeProgramTests {
  /// The site that the README's commands fetch from. In tests the local origin replaces it.
  private static let site = "https://www.python.org"

  /// Performs the steps of a section, with the origin instead of the site.
  private func follow(
    _ section: String, beginning: [String] = [],
    _ check: (ReadmeVisitor, String) async throws -> Void
  ) async throws {
    let picture = try #require(
      FileManager.default.contents(atPath: Readme.root + "Tests/Fixtures/images/photo.png"))
    try await withVisitor(inFolder: true) { visitor, place in
      visitor.replace(Self.site, by: ["/static/img/python-logo.png": .ok(Array(picture))])
      let clients = place + "/clients"
      try FileManager.default.createSymbolicLink(
        atPath: clients, withDestinationPath: Readme.root + "clients")
      for program in Readme.programs(of: section) { try await visitor.save(program) }
      for step in beginning.map({ Readme.Step(commands: $0) }) + Readme.steps(of: section) {
        try await visitor.follow(step)
      }
      try await check(visitor, place)
    }
  }

  @Test("the commands fetch the first image and show failures")
  func firstImage() async throws {
    try await follow(Readme.section("A first image")) { visitor, place in
      #expect(visitor.origin.requests.count == 1)
      let image = try #require(FileManager.default.contents(atPath: place + "/first.webp"))
      #expect(image.dropFirst(8).prefix(4).elementsEqual("WEBP".utf8))
    }
  }

  @Test("the command line saves images")
  func commandLine() async throws {
    let settings =
      "export IMAGEFETCH_FETCH_ALLOW_NETWORKS=127.0.0.1/32 IMAGEFETCH_FETCH_ALLOW_PORTS="
    let section = Readme.section("On the command line")
    #expect(Readme.steps(of: section).contains { $0.answer != nil })
    try await follow(section, beginning: [settings]) { _, place in
      #expect(FileManager.default.fileExists(atPath: place + "/pictures/python-logo.png"))
    }
  }

  @Test("a program saves an image")
  func program() async throws {
    let section = Readme.section("From a program")
    #expect(Readme.programs(of: section).map(\.name) == ["fetch.py"])
    try await follow(section) { visitor, place in
      let image = try #require(FileManager.default.contents(atPath: place + "/logo.webp"))
      #expect(image.dropFirst(8).prefix(4).elementsEqual("WEBP".utf8))
      #expect(!FileManager.default.fileExists(atPath: place + "/none.webp"))
      let blocked = try await visitor.run(
        "PYTHONPATH=clients/python python3 fetch.py http://10.0.0.1/a.png a.webp 2>&1; echo $?")
      #expect(
        blocked.hasSuffix("fetches from.\n1\n") || blocked.contains("10.0.0.1 has an address"))
      #expect(!blocked.contains("Traceback"), "\(blocked)")
    }
  }

  @Test("a page shows an image with a signed URL", .browser)
  func page() async throws {
    try await withVisitor(inFolder: true) { visitor, _ in
      try await begin(visitor)
      let section = Readme.section("In a page", of: Readme.file("docs/clients.md"))
      let markup = try #require(section.firstMatch(of: #/(?s)```html\n(.*?)\n```/#)?.1)
      let gate = Gate()
      visitor.origin.on("/photo.jpg", .held(Fixtures.jpeg, by: gate))
      visitor.origin.on("/page", .ok(Array("<title>A page</title>".utf8), type: "text/html"))
      let browser = try await Browser()
      try await browser.open(visitor.origin.url("/page"))
      // The markup is written into the page later, because the browser reports a page as loaded only after
      // all images.
      let write = "document.open(); document.write(arguments[0]); document.close()"
      try await browser.run(write, [try visitor.here(String(markup))])
      let look = """
        const image = document.images[0];
        // Another image may replace it during this call.
        await image.decode().catch(() => {});
        return `${image.width}: ${image.naturalWidth} x ${image.naturalHeight}, ${image.src.includes("wait=0")}`;
        """
      try await eventually { try await browser.run(look) as? String == "272: 544 x 362, true" }
      gate.open()
      try await eventually {
        try await browser.run(look) as? String == "272: 544 x 362, false"
      }
      await browser.close()
      let steps = Readme.steps(of: section)
      #expect(steps.contains { $0.answer != nil })
      for step in steps { try await visitor.follow(step) }
    }
  }

  /// Prepares the section: images, and a service that may fetch them.
  private func begin(_ visitor: ReadmeVisitor) async throws {
    let steps = Readme.steps(
      of: Readme.section("Try it on one machine", of: Readme.file("docs/tour.md")))
    try #require(steps.count == 2)
    try await visitor.follow(steps[0])
    try await visitor.follow(steps[1])
  }
}
