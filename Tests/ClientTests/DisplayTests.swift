import Foundation
import Testing

@testable import Client

@Suite("A job's line on a terminal")
struct DisplayTests {
  @Test("a progress line shows name, bar, amounts, pace and phase in columns")
  func line() {
    let line = JobLine(
      name: "photo.jpg", phase: .loading, completed: 500_000, total: 1_000_000, rate: 100_000)
    let text = line.text(width: 100, style: .plain)
    #expect(
      text == "photo.jpg                  ###############----------------"
        + "       500 kB/1.0 MB    100 kB/s  loading ")
  }

  @Test(
    "a progress line is never wider than the window",
    arguments: [1, 10, 20, 40, 60, 80, 120, 300])
  func width(columns: Int) {
    let names = ["a", String(repeating: "long", count: 99), "\u{1B}[2J\n日本語\u{301}"]
    let numbers = [(0, nil), (-5, 0), (7, 0), (Int.max, 1), (Int.max, Int.max), (1, nil)]
    for name in names {
      for (completed, total) in numbers {
        let line = JobLine(
          name: name, phase: .retrying, completed: completed, total: total, rate: 1e300)
        let text = line.text(width: columns, style: .plain)
        #expect(text.unicodeScalars.count <= columns)
        #expect(text.unicodeScalars.allSatisfy { 0x20...0x7E ~= $0.value })
        let colored = line.text(width: columns, style: Style(hasColor: true, isUnicode: true))
        let bare = colored.replacing(#/\u{1B}\[[0-9]*m/#, with: "")
        #expect(bare.unicodeScalars.count == text.unicodeScalars.count)
      }
    }
  }

  @Test(
    "an amount takes at most eight characters",
    arguments: [
      (-1, "0 B"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1536, "1.5 kB"),
      (9_949, "9.9 kB"), (9_951, "10 kB"), (102_400, "102 kB"), (999_499, "999 kB"),
      (999_500, "1.0 MB"), (3_200_000_000, "3.2 GB"), (Int.max, "9.2 EB"),
    ])
  func amounts(bytes: Int, text: String) {
    #expect(JobLine.amount(bytes) == text)
  }

  @Test("NO_COLOR removes colors, and a locale without UTF-8 removes characters beyond ASCII")
  func style() {
    let rich = Style(environment: ["LANG": "C.UTF-8"])
    #expect(rich.hasColor && rich.isUnicode)
    let plain = Style(environment: ["LC_ALL": "C", "LANG": "C.UTF-8", "NO_COLOR": "1"])
    #expect(!plain.hasColor && !plain.isUnicode)
    #expect(plain.good("x") == "x" && rich.good("x").contains("\u{1B}["))
    let failed = Outcome.failed(code: "x", detail: "\u{1B}]0;title\u{7}")
    #expect(!plain.line(failed, for: "http://a/\u{1B}").contains("\u{1B}"))
  }
}

@Suite("The progress display")
struct BarsTests {
  @Test("lines that others print stay above the bars until the display is closed")
  func told() throws {
    var ends: [Int32] = [0, 0]
    try #require(pipe(&ends) == 0)
    let display = ProgressDisplay(
      on: ends[1], style: Style(environment: ["NO_COLOR": "1", "LANG": "C"]), total: { 1 })
    display.begin(1, name: "cat.png")
    #expect(display.show("a log line\nand another\n"))
    display.close()
    #expect(!display.show("too late"))
    close(ends[1])
    let file = FileHandle(fileDescriptor: ends[0], closeOnDealloc: true)
    let text = String(decoding: try #require(try file.readToEnd()), as: UTF8.self)
    let lines = "a log line\u{1B}[K\nand another\u{1B}[K\n"
    #expect(text.ranges(of: lines).count == 1, "\(text)")
    #expect(!text.contains("too late"))
    // The bars drawn before these lines were erased first.
    let above = try #require(text.ranges(of: lines).first).lowerBound
    let bars = text[..<above].count { $0 == "\n" }
    #expect(bars == 0 || text[..<above].hasSuffix("A"), "\(text)")
  }
}

@Suite("Responses of a hostile server")
struct HostileServerTests {
  @Test("a hostile text moves no cursor, whichever member contains it")
  func controls() {
    let evil = "\u{1B}]0;OWNED\u{07}\u{1B}[2J\tpng"
    let style = Style(environment: ["NO_COLOR": "1", "LANG": "C.UTF-8"])
    let outcomes: [Outcome] = [
      .saved(SavedImage(path: "cat.png", size: (1, 1), format: evil, bytes: 3)),
      .failed(code: evil, detail: evil),
    ]
    for outcome in outcomes {
      let line = style.line(outcome, for: "http://a.example/\(evil)")
      #expect(!line.unicodeScalars.contains { $0.value < 0x20 || $0.value == 0x7F }, "\(line)")
    }
  }

  @Test("huge sizes overflow no sum")
  func sums() throws {
    let body = """
      {"id":"1","phase":"loading","attempts":1,
       "progress":{"completed":9223372036854775807,"total":-9223372036854775808}}
      """
    let job = try #require(JobResponse(Array(body.utf8)))
    #expect(job.progress.completed == 1 << 50 && job.progress.total == 0)
  }

  @Test(
    "only a service on this machine is contacted without a proxy",
    arguments: [
      ("http://127.0.0.1:8080", true), ("http://localhost", true), ("https://[::1]:9/x", true),
      ("http://127.0.0.1.example.org", false), ("http://localhost.example.org/", false),
      ("https://images.example:8080/127.0.0.1", false),
    ])
  func loopback(address: String, isLoopback: Bool) throws {
    #expect(try #require(ServiceAddress(address, token: nil)).isLoopback == isLoopback)
  }
}
