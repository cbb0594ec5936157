import App
import Foundation
import Settings
import TestSupport
import Testing

/// Compares the README with the service: runs its examples and checks its lists.
@Suite("The README", .timeLimit(.minutes(15)))
struct ReadmeTests {
  @Test("the tour shows what the service returns, command by command")
  func examples() async throws {
    let page = Readme.file("docs/tour.md")
    let steps = ["Try it on one machine", "Each endpoint"].flatMap {
      Readme.steps(of: Readme.section($0, of: page))
    }
    #expect(steps.count { $0.answer != nil } >= 8, "the page must have examples")
    try await withVisitor { visitor, _ in
      for step in steps { try await visitor.follow(step) }
    }
  }

  @Test("the README is short, and so are its lines")
  func size() {
    let lines = Readme.text.split(separator: "\n", omittingEmptySubsequences: false)
    #expect(lines.count <= 181)
  }

  @Test("the README names no unknown variable")
  func variables() {
    let known = Set(Configuration.keys.map(\.environmentName) + [Configuration.tokenVariable])
    let pages = ["README.md", "docs/tour.md", "docs/clients.md", "docs/configuration.md"]
    let named = pages.map(Readme.file).joined().matches(of: #/IMAGEFETCH_[A-Z_]+/#)
      .map { String($0.0) }
    #expect(named.count >= 3)
    for name in named { #expect(known.contains(name), "\(name)") }
  }

  @Test("the README names no unknown key among those without effect")
  func withoutEffect() throws {
    let lines = Readme.section("Safety")
    for match in lines.matches(of: #/`([a-z]+)\.([a-z_*]+)`/#) {
      let found = Configuration.keys.contains { key in
        match.2 == "*" ? key.path.hasPrefix("\(match.1).") : key.path.hasPrefix(match.0.dropTicks)
      }
      #expect(found, "\(match.0)")
    }
  }

  @Test("the tour names every operation of openapi.yaml")
  func operations() {
    var path = ""
    var found = 0
    for line in Readme.file("openapi.yaml").split(separator: "\n") {
      if let match = line.wholeMatch(of: #/  (/[^ ]*):/#) { path = String(match.1) }
      // The section after the paths describes requests that the service sends.
      if line == "webhooks:" { break }
      guard !path.isEmpty, let match = line.wholeMatch(of: #/    (get|post|put|patch|delete):/#)
      else { continue }
      found += 1
      let operation = "\(match.1.uppercased()) \(path)"
      let isNamed = Readme.file("docs/tour.md").contains("`\(operation)")
      #expect(isNamed, "\(operation)")
    }
    #expect(found >= 11)
  }

  @Test("the architecture page names each folder of Sources and no other")
  func layout() throws {
    let section = Readme.section("Sources", of: Readme.file("docs/contributing.md"))
    let named = section.matches(of: #/([A-Za-z0-9]+)/(?= | *\)|$)/#).map { String($0.1) }
    let there = try FileManager.default.contentsOfDirectory(atPath: Readme.root + "Sources")
    #expect(Set(named) == Set(there))
  }

  @Test("links lead to existing files, and the changelog has this version")
  func files() {
    let links = Readme.text.matches(of: #/\]\(([^):#]+)\)/#).map { String($0.1) }
    #expect(links.count > 5)
    for link in links {
      #expect(FileManager.default.fileExists(atPath: Readme.root + link), "\(link)")
    }
    #expect(Readme.file("CHANGELOG.md").contains("\n## [\(App.version)]"))
  }

  @Test("the README and docs/contributing.md name only existing make targets")
  func targets() {
    let makefile = Readme.file("Makefile")
    let text = Readme.text + Readme.file("docs/contributing.md")
    let named = Set(text.matches(of: #/`make ([a-z][a-z0-9-]+)/#).map { String($0.1) })
    #expect(named.count >= 6)
    for name in named {
      let isThere = makefile.contains("\n\(name): ")
      #expect(isThere, "make \(name)")
    }
  }
}

extension Substring {
  fileprivate var dropTicks: String { String(dropFirst().dropLast()) }
}
