import App
import Foundation
import TestSupport
import Testing

@Suite("GET /image", .timeLimit(.minutes(15)))
struct ViewTests {
  private static let key = String(repeating: "0f", count: 32)

  /// Returns the view of an image as the value of `src`.
  private func view(_ url: String, _ rest: String = "") -> String {
    let plain = CharacterSet.alphanumerics
    return "/image?url=" + (url.addingPercentEncoding(withAllowedCharacters: plain) ?? "") + rest
  }

  @Test(
    "a page shows a placeholder while the image is fetched, and then the image at its size",
    .browser)
  func page() async throws {
    try await withPipeline(["view.enabled": "true"]) { service, origin in
      let gate = Gate()
      origin.on("/photo.jpg", .held(Fixtures.jpeg, after: 1_000, by: gate))
      let browser = try await Browser()
      try await browser.open("\(service.base)/livez")
      let show = """
        const image = new Image(); image.src = arguments[0]; document.body.append(image)
        await image.decode(); return [image.naturalWidth, image.naturalHeight]
        """
      let url = origin.url("/photo.jpg")
      let size = "&width=240&height=100&dpr=2"
      let loading = try await browser.run(show, [view(url, size + "&placeholder=true&wait=0")])
      #expect(loading as? [Int] == [267, 200])
      gate.open()
      let shown = try await browser.run(show, [view(url, "&width=240&format=auto")])
      #expect(shown as? [Int] == [240, 160])
      let whole = try await browser.run(show, [view(url)])
      #expect(whole as? [Int] == [480, 320])
      let broken = try await browser.run(show, [view(origin.url("/none.png"), "&placeholder=true")])
      #expect(broken as? [Int] == [480, 360])
      #expect(origin.requests(to: "/photo.jpg").count == 1)
      #expect(try await service.all("success").count == 1)
      await browser.close()
    }
  }

  @Test("with tokens only signed URLs are answered, such as those of the command")
  func signed() async throws {
    let hash = "d2b18ca93f5c2a7f3d1a0e6ea6f3bd5ea6e1d8c9f0b7e4a39d1c2b5a68f70e94"
    let settings = [
      "view.enabled": "true", "view.keys": Self.key,
      "auth.tokens": "[{name: web, sha256: \(hash), scopes: [jobs]}]",
    ]
    try await withPipeline(settings) { service, origin in
      origin.on("/photo.jpg", .ok(Fixtures.jpeg))
      let url = origin.url("/photo.jpg")
      #expect(try await service.get(view(url)).status == 403)
      for arguments in [
        [url], [view(url, "&width=100")],
        ["https://img.example\(view(url))", "--expires-in", "5m"],
        [url, "--server", "https://img.example/"],
      ] {
        let run = try CommandRun(["sign"] + arguments, ["IMAGEFETCH_VIEW_KEYS": Self.key])
        #expect(run.status == 0, "\(run.error)")
        let signed = run.output.trimmingCharacters(in: .newlines)
        #expect(
          signed.hasPrefix("https://img.example/") == arguments.joined().contains("img.example"))
        let target = signed.replacing("https://img.example", with: "")
        let answer = try await service.get(target)
        #expect(answer.status == 200 && answer.headers["content-type"] == "image/jpeg", "\(target)")
        #expect(answer.headers["link"]?.contains("describedby") == true)
        #expect(try await service.get(target + "&height=5").status == 403)
      }
      #expect(origin.requests(to: "/photo.jpg").count == 1)
    }
  }

  @Test("a program signs a URL as docs/clients.md shows")
  func program() async throws {
    let page = Readme.file("docs/clients.md")
    let shown = try #require(page.firstMatch(of: #/(?s)  ```python\n(.*?)\n  ```/#)?.1)
    let code = shown.split(separator: "\n", omittingEmptySubsequences: false)
      .map { $0.hasPrefix("  ") ? $0.dropFirst(2) : $0 }.joined(separator: "\n")
    try await withPipeline(["view.enabled": "true", "view.keys": Self.key]) { service, origin in
      origin.on("/photo.jpg", .ok(Fixtures.jpeg))
      let call =
        "print(signed('\(Self.key)', '\(origin.url("/photo.jpg?a=b&c"))', width=30), end='')"
      let url = try await Shell.run(
        "python3 - <<'END'\n\(code)\n\(call)\nEND", in: service.folder)
      let answer = try await service.get(url)
      #expect(answer.status == 200, "\(url)")
      #expect(try await ShownPixels(Array(answer.body))?.width == 30)
      #expect(try await service.get(view(origin.url("/photo.jpg"))).status == 403)
    }
  }

  @Test(
    "sign fails without a key, without a URL, or without a lifetime",
    arguments: [
      (["https://a.example/x.png"], "", 1, "view.keys: there is no key"),
      (["not a url"], key, 2, "neither a URL of GET"), (["/image?width=3"], key, 2, "neither"),
      (["ftp://a.example/"], key, 2, "neither"), ([], key, 2, "url"),
      (["https://a.example/", "--server", "ftp://b.example"], key, 2, "--server"),
      (["/image?url=x", "--server", "https://b.example"], key, 2, "--server"),
      (["https://a.example/", "--expires-in", "0s"], key, 2, "not a duration"),
      (["https://a.example/", "--expires-in", "soon"], key, 2, "not a duration"),
    ] as [([String], String, Int32, String)])
  func unsigned(arguments: [String], key: String, status: Int32, error: String) throws {
    let environment = key.isEmpty ? [:] : ["IMAGEFETCH_VIEW_KEYS": key]
    let run = try CommandRun(["sign"] + arguments, environment)
    #expect(run.status == status)
    #expect(run.output.isEmpty && run.error.contains(error), "\(run.error)")
    // A usage error includes the form of the command.
    #expect(run.error.contains("Usage: imagefetch sign") == (status == 2), "\(run.error)")
  }

  @Test("sign refuses a member that the view would refuse")
  func unknownMember() throws {
    let run = try CommandRun(
      ["sign", "/image?url=https%3A%2F%2Fa.example%2F&widht=5"],
      ["IMAGEFETCH_VIEW_KEYS": String(repeating: "ab", count: 16)])
    #expect(run.status == 2 && run.output.isEmpty)
    #expect(run.error.contains("\"widht\" is not a parameter of GET"), "\(run.error)")
  }

  @Test("sign replaces an earlier signature")
  func again() throws {
    var configuration = Configuration()
    configuration.view.keys = [[UInt8](repeating: 9, count: 16)]
    let first = try ViewURL("/image?url=https%3A%2F%2Fa.example%2F&width=5")
      .signed(by: configuration, expires: Date(timeIntervalSince1970: 1_000))
    #expect(first.contains("&width=5&expires=1000&signature="))
    let second = try ViewURL(first)
      .signed(by: configuration, expires: Date(timeIntervalSince1970: 1_000))
    #expect(second == first)
    // A proxy that serves the service below a path removes that path.
    let below = try ViewURL("https://img.example/pictures" + first)
      .signed(by: configuration, expires: Date(timeIntervalSince1970: 1_000))
    #expect(below == "https://img.example/pictures" + first)
  }
}
