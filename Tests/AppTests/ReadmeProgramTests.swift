import Foundation
import TestSupport
import Testing

/// The programs that the README shows are run as their readers would run them.
@Suite("The README's programs", .timeLimit(.minutes(5)))
struct ReadmeProgramTests {
  private static let section = Readme.section("From a program")

  @Test("are there for each language that the section promises")
  func languages() {
    let names = Readme.programs(of: Self.section).map(\.name)
    #expect(names == ["fetch.sh", "fetch.py", "fetch.swift", "fetch.js"])
  }

  @Test("fetch the first image by two commands")
  func firstImage() async throws {
    let picture = try #require(
      FileManager.default.contents(atPath: Readme.root + "Tests/Fixtures/images/photo.png"))
    try await withVisitor(inFolder: true) { visitor, place in
      visitor.replace(
        "https://www.python.org/static/img/python-logo.png", by: .ok(Array(picture)))
      for step in Readme.steps(of: Readme.section("A first image")) {
        try await visitor.follow(step)
      }
      #expect(visitor.origin.requests.count == 1)
      #expect(FileManager.default.contents(atPath: place + "/first.png") == picture)
    }
  }

  @Test("print what is shown and save what they say, in a shell, Python and Swift")
  func commands() async throws {
    try await withVisitor(inFolder: true) { visitor, place in
      try await begin(visitor)
      for program in Readme.programs(of: Self.section) { try visitor.save(program) }
      let steps = Readme.steps(of: Self.section)
      #expect(steps.contains { $0.answer != nil })
      for step in steps { try await visitor.follow(step) }
      let sizes = """
        from PIL import Image
        for name in 'shell', 'python', 'swift':
          with Image.open(name + '.webp') as image: print(image.format, *image.size)
        """
      let output = try await visitor.run("/usr/bin/python3 -c \"\(sizes)\"")
      #expect(output == String(repeating: "WEBP 320 213\n", count: 3))
    }
  }

  @Test("stop with the error's words")
  func failures() async throws {
    try await withVisitor(inFolder: true) { visitor, place in
      try await begin(visitor)
      for program in Readme.programs(of: Self.section) { try visitor.save(program) }
      _ = try await visitor.run("swiftc fetch.swift")
      for command in ["bash fetch.sh", "python3 fetch.py", "./fetch"] {
        for (url, words) in [
          ("http://127.0.0.1:9000/none.png", "404"),
          ("http://10.0.0.1/photo.png", "10.0.0.1 is at an address"),
          ("ftp://127.0.0.1/photo.png", "https"),
        ] {
          let output = try await visitor.run("\(command) \(url) none.webp; echo \"status $?\"")
          #expect(output.contains(words) && output.hasSuffix("status 1\n"), "\(command): \(output)")
          #expect(!output.contains("Traceback") && !output.contains("Fatal error"), "\(output)")
        }
        #expect(!FileManager.default.fileExists(atPath: place + "/none.webp"))
      }
    }
  }

  @Test("show an image and its progress in a browser, or say why there is none")
  func browser() async throws {
    try await withVisitor(inFolder: true) { visitor, _ in
      try await begin(
        visitor, settings: ["IMAGEFETCH_SERVER_CORS_ORIGINS": visitor.origin.url("")])
      let script = try #require(
        Readme.programs(of: Self.section).first { $0.name.hasSuffix(".js") })
      let page = """
        <!doctype html><title>A page</title><img><progress></progress>
        <script>\(try visitor.here(script.text))</script>
        """
      visitor.origin.on("/page", .ok(Array(page.utf8), type: "text/html"))
      let browser = try await Browser()
      try await browser.open(visitor.origin.url("/page"))
      let call = """
        const image = document.images[0], progress = document.querySelector("progress");
        return show(arguments[0], image, progress).then(
          () => [image.naturalWidth, image.naturalHeight, progress.value], error => error.message);
        """
      let shown = try await browser.run(call, [visitor.origin.url("/photo.jpg")])
      #expect(shown as? [Int] == [320, 213, 1])
      for (url, words) in [
        (visitor.origin.url("/none.png"), "404"), ("http://10.0.0.1/photo.png", "10.0.0.1 is at"),
        ("ftp://127.0.0.1/photo.png", "https"),
      ] {
        let said = try await browser.run(call, [url]) as? String
        #expect(said?.contains(words) == true, "\(said ?? "nothing")")
      }
      await browser.close()
    }
  }

  @Test("show a view on a page, and sign one")
  func page() async throws {
    try await withVisitor(inFolder: true) { visitor, _ in
      try await begin(visitor)
      let section = Readme.section("In a page")
      let markup = try #require(section.firstMatch(of: #/(?s)```html\n(.*?)\n```/#)?.1)
      let gate = Gate()
      visitor.origin.on("/photo.jpg", .held(Fixtures.jpeg, by: gate))
      visitor.origin.on("/page", .ok(Array("<title>A page</title>".utf8), type: "text/html"))
      let browser = try await Browser()
      try await browser.open(visitor.origin.url("/page"))
      // Not as the page itself: the browser says that it is loaded once all images are.
      let write = "document.open(); document.write(arguments[0]); document.close()"
      try await browser.run(write, [try visitor.here(String(markup))])
      let look = """
        const image = document.images[0];
        await image.decode();
        return `${image.width}: ${image.naturalWidth} x ${image.naturalHeight}, ${image.src.includes("wait=0")}`;
        """
      let first = try await browser.run(look) as? String
      #expect(first == "272: 544 x 362, true")
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

  /// What the section goes on from: pictures and a service that may fetch them.
  private func begin(_ visitor: ReadmeVisitor, settings: [String: String] = [:]) async throws {
    let steps = Readme.steps(of: Readme.section("Try it on one machine"))
    try #require(steps.count == 2)
    try await visitor.follow(steps[0])
    try await visitor.follow(steps[1], adding: settings)
  }
}
