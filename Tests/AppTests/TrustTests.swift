import Foundation
import Testing

/// Checks that docs/trust.md has every promise and names only existing tests.
@Suite("The trust page")
struct TrustTests {
  private static let page = Documentation.Page("docs/trust.md")

  /// The dated pages with measurements.
  private static var results: [Documentation.Page] {
    get throws {
      let folder = "Benchmarks/results/"
      return try FileManager.default.contentsOfDirectory(atPath: Readme.root + folder)
        .map { Documentation.Page(folder + $0) }
    }
  }

  @Test("the page has every promise of SECURITY.md, in the same words")
  func security() {
    let promised = Documentation.Page("SECURITY.md").table("What is promised").map { $0[0] }
    #expect(promised.count >= 10)
    #expect(Self.page.table("What SECURITY.md promises").map { $0[0] } == promised)
  }

  @Test("the page has every promise of the README's paragraphs on safety")
  func readme() {
    let promised = Readme.section("Safety").matches(of: #/(?m)^- \*\*(.+?)\.?\*\*/#)
      .map { String($0.1) }
    #expect(promised.count >= 9)
    let said = Self.page.table("What the README promises").map { $0[0] }
    #expect(Array(said.prefix(promised.count)) == promised)
  }

  @Test("each row names a few existing suites, test folders or make targets")
  func names() throws {
    let (suites, targets) = (try Self.suites, Self.targets)
    #expect(suites.count > 200 && targets.count > 15)
    for section in [
      "What SECURITY.md promises", "What the README promises", "What operators rely on",
    ] {
      for row in Self.page.table(section) {
        #expect(row.count == 3 && row[2].contains("`"), "\(row)")
      }
    }
    for word in Self.page.ticked + (try Self.results.flatMap(\.ticked)) {
      for match in word.matches(of: #/\b[A-Za-z0-9]+Tests\b/#) {
        #expect(suites.contains(String(match.0)), "\(match.0)")
      }
      for match in word.matches(of: #/\bmake ([a-z-]+)/#) {
        #expect(targets.contains(String(match.1)), "\(match.0)")
      }
    }
  }

  @Test("each figure has a date, or the page says that it was not measured")
  func figures() throws {
    let rows = try Self.results.flatMap { $0.table("Figures") }
    #expect(rows.count >= 5)
    for row in rows {
      let isMeasured = row.count == 4 && row[3].wholeMatch(of: #/\d{4}-\d\d-\d\d/#) != nil
      #expect(isMeasured || row[1].hasPrefix("not measured"), "\(row)")
    }
  }

  /// The names that `--filter` accepts: types with tests, and the folders of test targets.
  private static var suites: Set<String> {
    get throws {
      let folder = Readme.root + "Tests/"
      let files = try FileManager.default.subpathsOfDirectory(atPath: folder)
      var names = Set(files.filter { !$0.contains("/") })
      for file in files where file.hasSuffix("Tests.swift") {
        let types = Readme.file("Tests/" + file).matches(
          of: #/(?m)^(?:final )?(?:struct|class|actor) (\w+Tests)\b/#)
        names.formUnion(types.map { String($0.1) })
      }
      return names
    }
  }

  private static var targets: Set<String> {
    Set(Readme.file("Makefile").matches(of: #/(?m)^([a-z0-9-]+):/#).map { String($0.1) })
  }
}
