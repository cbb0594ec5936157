import Foundation
import Testing

@testable import Client

@Suite("The totals of a run")
struct TotalsTests {
  @Test("the progress text has the total, the pace and the time left")
  func progress() {
    var tally = Totals()
    #expect(
      tally.progress(total: 5, running: 2, rate: 0, elapsed: .seconds(1))
        == "0 of 5: 0 saved, 0 failed, 2 running")
    let image = SavedImage(path: "a.png", size: (1, 1), format: "png", bytes: 1_000_000)
    tally.count(.saved(image))
    tally.count(.failed(code: "x", detail: "y"))
    tally.count(.skipped(path: nil))
    #expect(
      tally.progress(total: 5, running: 2, rate: 2000, elapsed: .seconds(10))
        == "3 of 5: 1 saved, 1 skipped, 1 failed, 2 running, 2.0 kB/s, 10 s left")
    // While a list is still being read, the total is unknown. For one image no total is shown.
    #expect(
      tally.progress(total: nil, running: 1, rate: 0, elapsed: .seconds(10))
        == "1 saved, 1 skipped, 1 failed, 1 running")
    #expect(tally.summary(elapsed: .seconds(10)) == "1 saved (1.0 MB), 1 skipped, 1 failed, 10 s")
    tally.cancelled = 4
    #expect(
      tally.summary(elapsed: .seconds(10))
        == "1 saved (1.0 MB), 1 skipped, 1 failed, 4 cancelled, 10 s")
    let single = Totals().progress(total: 1, running: 1, rate: 0, elapsed: .zero)
    #expect(single == "0 saved, 0 failed, 1 running")
  }

  @Test("skipped URLs do not count toward the pace")
  func remaining() {
    let tally = Totals(saved: 10, skipped: 1000, failed: 10)
    #expect(tally.remaining(total: 1040, elapsed: .seconds(40)) == .seconds(40))
    #expect(tally.remaining(total: 1020, elapsed: .seconds(40)) == nil)
    #expect(tally.remaining(total: nil, elapsed: .seconds(40)) == nil)
    #expect(tally.remaining(total: 1040, elapsed: .seconds(1)) == nil)
    #expect(Totals(skipped: 5).remaining(total: 9, elapsed: .seconds(9)) == nil)
    #expect(Totals(failed: 1).remaining(total: .max, elapsed: .seconds(1 << 40)) == nil)
  }

  @Test(
    "a time has at most two units",
    arguments: [
      (0.0, "0.0 s"), (0.44, "0.4 s"), (9.949, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"),
      (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (-1, "0.0 s"),
    ])
  func times(seconds: Double, text: String) {
    #expect(Totals.time(.seconds(seconds)) == text)
  }
}

@Suite("Skipped URLs")
struct NamingTests {
  private func inFolder(_ body: (String) throws -> Void) throws {
    let folder = NSTemporaryDirectory() + "imagefetch-naming-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try body(folder)
  }

  private func naming(
    _ folder: String, _ template: String? = nil, variant: String = ""
  ) throws -> Naming {
    Naming(
      .folder(folder), template: try template.map { try NameTemplate($0) }, skipsExisting: true,
      format: nil, variant: variant)
  }

  /// Saves an image as a run does.
  private func save(_ url: String, _ naming: Naming, in folder: String) throws -> String {
    let path = folder + "/" + naming.name(of: url, index: 1, ending: "jpg")
    let parent = path[..<(path.lastIndex(of: "/") ?? path.endIndex)]
    try FileManager.default.createDirectory(
      atPath: String(parent), withIntermediateDirectories: true)
    try Data().write(to: URL(filePath: path))
    return path
  }

  @Test(
    "only URLs that an earlier run saved in the folder are skipped",
    arguments: [nil, "{host}/{path}/{name}.{ext}", "{index}.{ext}", "x.jpg", "{digest}.{ext}"])
  func others(template: String?) throws {
    let stem = "summer-dress-for-women-with-floral-print-and-short-sleeves-size-medium-0"
    let first = [
      "http://h/猫.jpg", "http://h/犬.jpg", "http://h/\(stem)1.jpg", "http://h/\(stem)2.jpg",
      "http://h/a.b.jpg", "http://h/ab.jpg", "h.example/x.jpg",
    ]
    let later = [
      "http://h/鳥.jpg", "http://h/\(stem)3.jpg", "http://h/ab.png", "http://h/ab.jpg?v=2",
      "https://h/ab.jpg", "http://h:8080/ab.jpg", "http://h/x/ab.jpg", "http://h/a-b.jpg",
    ]
    try inFolder { folder in
      var paths: [String] = []
      let run = try naming(folder, template)
      for url in first {
        #expect(run.fileState(of: url, index: 1) == .wanted, "\(url)")
        paths.append(try save(url, run, in: folder))
      }
      #expect(Set(paths).count == first.count, "each has a file of its own")
      #expect(run.fileState(of: first[0], index: 9) == .isRepeated)
      let again = try naming(folder, template)
      for (url, path) in zip(first, paths) {
        #expect(again.fileState(of: url, index: 1) == .exists(path))
      }
      for url in later { #expect(again.fileState(of: url, index: 1) == .wanted, "\(url)") }
      let smaller = try naming(folder, template, variant: "?width=100")
      for url in first { #expect(smaller.fileState(of: url, index: 1) == .wanted, "\(url)") }
      // A URL without a scheme equals its https URL.
      #expect(again.fileState(of: "https://h.example/x.jpg", index: 1) == .isRepeated)
    }
  }

  @Test("a file with the same plain name from another source does not skip a URL")
  func foreign() throws {
    try inFolder { folder in
      try Data().write(to: URL(filePath: folder + "/cat.jpg"))
      #expect(try naming(folder).fileState(of: "http://h/cat.jpg", index: 1) == .wanted)
    }
  }
}

@Suite("File name templates")
struct NameTemplateTests {
  @Test(
    "names are safe for every URL, in all scripts",
    arguments: [
      ("https://Img.Example:8443/a/b/cat.final.jpg?x=1#y", "img.example/a/b/cat.final.png"),
      ("http://h/猫.jpg", "h/猫.png"), ("http://h/%E7%8A%AC.jpg", "h/犬.png"),
      ("http://h/Stra%C3%9Fe/a.b.jpg", "h/Straße/a.b.png"), ("http://h/ab.jpg", "h/ab.png"),
      ("http://h/e\u{301}.jpg", "h/e\u{301}.png"), ("http://h/\u{301}a.jpg", "h/a.png"),
      ("http://h/a%20b%2Fc%00%0A$(x).jpg", "h/a-b-c-x.png"),
      ("http://h/a%E2%80%AEgpj.exe", "h/a-gpj.png"), ("http://h/%FF%FE.jpg", "h/image.png"),
      ("http://h/100%.jpg", "h/100.png"), ("http://h/-rf.-x.jpg", "h/rf.-x.png"),
      ("http://h/\u{645}\u{200C}\u{62E}.jpg", "h/\u{645}\u{200C}\u{62E}.png"),
      ("example.org/cat.jpg", "example.org/cat.png"),
      ("http://[2001:db8::1]/x", "2001-db8-1/x.png"), ("http://u:p@host/", "host/image.png"),
      ("http://../../../x", "unknown/x.png"), ("http://h/..\\..\\x.exe", "h/x.png"),
      ("http://h/日本/%2e%2e%2f.png", "h/日本/image.png"), ("http://h", "h/image.png"),
      ("nonsense", "nonsense/image.png"), ("", "unknown/image.png"),
    ])
  func names(url: String, name: String) throws {
    let template = try NameTemplate("{host}/{path}/{name}.{ext}")
    #expect(template.name(of: url, index: 7, digest: "", ending: "png") == name)
  }

  @Test(
    "a name fits into 255 bytes with a number, and keeps whole characters and the digest")
  func long() throws {
    let digest = "0123456789abcdef"
    for (template, letter) in [
      ("{name}.{ext}", "a"), ("{name}.{ext}", "猫"), ("{host}-{name}-{name}.{ext}", "é"),
    ] {
      let template = try NameTemplate(template).withDigest
      let host = String(repeating: "h", count: 200) + ".example"
      let url = "http://\(host)/" + String(repeating: letter, count: 300) + ".jpg"
      let name = template.name(of: url, index: 1, digest: digest, ending: "jpg")
      let bytes = FileName.numbered(name, 1 << 30).utf8.count
      #expect(200...255 ~= bytes, "\(bytes)")
      #expect(name.hasSuffix("-\(digest).jpg") && name.contains(letter))
    }
  }

  @Test("the digest is where the template has it, or else before the extension")
  func digest() throws {
    for (template, name) in [
      ("{name}.{ext}", "cat-D.png"), ("{digest}/{name}.{ext}", "D/cat.png"),
      ("{name}.v1.webp", "cat.v1-D.webp"), ("{index}.{ext}", "7-D.png"), ("a.{ext}", "a-D.png"),
    ] {
      let made = try NameTemplate(template).withDigest.name(
        of: "http://h/cat.jpg", index: 7, digest: "D", ending: "png")
      #expect(made == name)
    }
  }

  @Test("a name has at most as many of the URL's folders as fit into a path")
  func deep() throws {
    let template = try NameTemplate("{path}/{name}.{ext}")
    let folder = String(repeating: "f", count: 100) + "/"
    let url = "http://h/" + String(repeating: folder, count: 80) + "x.jpg"
    let name = template.name(of: url, index: 1, digest: "", ending: "jpg")
    #expect(name.utf8.count < 2_000 && name.hasSuffix("/x.jpg"))
  }

  @Test("a fixed extension of the template selects the format")
  func format() throws {
    #expect(try NameTemplate("{index}.JPG").format == .jpeg)
    #expect(try NameTemplate("x/{name}.{ext}").format == nil)
    #expect(try NameTemplate("{name}.gif").format == nil)
    let names = try NameTemplate("{index}.webp").names(
      of: "http://h/x", index: 3, digest: "", endings: ["jpg"])
    #expect(names == ["3.webp"])
  }

  @Test(
    "a template cannot leave the folder",
    arguments: [
      "", "/", "a/", "/a.{ext}", "../a.{ext}", "a/../b.{ext}", "./a.{ext}", "a//b.{ext}", "{name}",
      "..{path}/a.{ext}", ".{path}./a.{ext}", "a/{path}../b.{ext}", "{ext}", "a.{name}", "{x}.jpg",
      "{name.jpg", "name}.jpg", "a\n.jpg", "a\u{0}.jpg",
      String(repeating: "a", count: 600) + ".jpg",
    ])
  func refused(text: String) {
    #expect(throws: NameTemplate.Mistake.self) { try NameTemplate(text) }
  }
}
