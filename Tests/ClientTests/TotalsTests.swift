import Testing

@testable import Client

@Suite("How far a run is")
struct TotalsTests {
  @Test("is told with all that there are, the pace and the time that is left")
  func progress() {
    var tally = Totals()
    #expect(
      tally.progress(total: 5, running: 2, rate: 0, elapsed: .seconds(1))
        == "0 of 5: 0 saved, 0 failed, 2 running")
    let image = SavedImage(path: "a.png", size: (1, 1), format: "png", bytes: 1 << 20)
    tally.count(.saved(image))
    tally.count(.failed(code: "x", detail: "y"))
    tally.count(.skipped(path: nil))
    #expect(
      tally.progress(total: 5, running: 2, rate: 2048, elapsed: .seconds(10))
        == "3 of 5: 1 saved, 1 skipped, 1 failed, 2 running, 2.0 KiB/s, 10 s left")
    // A list that still comes in has no end yet; one image needs no count.
    #expect(
      tally.progress(total: nil, running: 1, rate: 0, elapsed: .seconds(10))
        == "1 saved, 1 skipped, 1 failed, 1 running")
    #expect(tally.summary(elapsed: .seconds(10)) == "1 saved (1.0 MiB), 1 skipped, 1 failed, 10 s")
    let single = Totals().progress(total: 1, running: 1, rate: 0, elapsed: .zero)
    #expect(single == "0 saved, 0 failed, 1 running")
  }

  @Test("what was skipped took no time, and so says nothing of what the rest takes")
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
    "times take two units",
    arguments: [
      (0.0, "0.0 s"), (0.44, "0.4 s"), (9.949, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"),
      (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (-1, "0.0 s"),
    ])
  func times(seconds: Double, text: String) {
    #expect(Totals.time(.seconds(seconds)) == text)
  }
}

@Suite("Names by a template")
struct NameTemplateTests {
  @Test(
    "are plain whatever a URL holds",
    arguments: [
      ("https://Img.Example:8443/a/b/cat.final.jpg?x=1#y", "img.example/a/b/catfinal.png"),
      ("example.org/cat.jpg", "example.org/cat.png"),
      ("http://[2001:db8::1]/x", "2001-db8--1/x.png"), ("http://u:p@host/", "host/image.png"),
      ("http://../../../x", "unknown/x.png"), ("http://h/..\\..\\x.exe", "h/x.png"),
      ("http://h/日本/%2e%2e%2f.png", "h/image.png"), ("http://h", "h/image.png"),
      ("nonsense", "nonsense/image.png"), ("", "unknown/image.png"),
    ])
  func names(url: String, name: String) throws {
    let template = try NameTemplate("{host}/{path}/{name}.{ext}")
    #expect(template.name(of: url, index: 7, ending: "png") == name)
  }

  @Test("take no more folders of a URL than a path has room for")
  func deep() throws {
    let template = try NameTemplate("{path}/{name}.{ext}")
    let folder = String(repeating: "f", count: 100) + "/"
    let url = "http://h/" + String(repeating: folder, count: 80) + "x.jpg"
    let name = template.name(of: url, index: 1, ending: "jpg")
    #expect(name.utf8.count < 2_000 && name.hasSuffix("/x.jpg"))
  }

  @Test("say which format is wished, where they end with one")
  func format() throws {
    #expect(try NameTemplate("{index}.JPG").format == .jpeg)
    #expect(try NameTemplate("x/{name}.{ext}").format == nil)
    #expect(try NameTemplate("{name}.gif").format == nil)
    let names = try NameTemplate("{index}.webp").names(of: "http://h/x", index: 3, endings: ["jpg"])
    #expect(names == ["3.webp"])
  }

  @Test(
    "never leave the folder by the template itself",
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
