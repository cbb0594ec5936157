import Foundation
import HTTPTypes
import Settings
import TestSupport
import Testing
import YAML

@testable import API
@testable import App
@testable import Engine
@testable import Jobs

/// Compares the facts in docs/ with the sources.
@Suite("The documentation", .timeLimit(.minutes(15)))
struct DocumentationTests {
  @Test("links lead to existing files and headings", arguments: Documentation.pages.map(\.path))
  func links(path: String) throws {
    let page = Documentation.Page(path)
    let links = page.text.matches(of: #/\]\(([^):]+)\)/#).map { String($0.1) }
    #expect(links.count >= 2)
    for link in links {
      let parts = link.split(separator: "#", omittingEmptySubsequences: false)
      if let file = parts.first, !file.isEmpty {
        let target = URL(filePath: Readme.root + path).deletingLastPathComponent()
          .appending(path: String(file)).path
        #expect(FileManager.default.fileExists(atPath: target), "\(link)")
      } else {
        #expect(page.anchors.contains(String(parts[1])), "\(link)")
      }
    }
  }

  @Test("the documentation names existing keys and variables with their defaults")
  func keys() {
    let keys = Dictionary(uniqueKeysWithValues: Configuration.keys.map { ($0.path, $0) })
    let sections = Set(keys.keys.map { $0.prefix { $0 != "." } })
    let variables = Set(Configuration.keys.map(\.environmentName) + [Configuration.tokenVariable])
    var named: Set<String> = []
    for page in Documentation.pages {
      for match in page.text.matches(of: #/\b([a-z]+)\.[a-z_.]*[a-z]\b/#)
      where sections.contains(match.1)
        && ![".yaml", ".png", ".nginx"].contains(where: match.0.hasSuffix)
      {
        let name = String(match.0)
        let isThere = keys[name] != nil || keys.keys.contains { $0.hasPrefix(name + ".") }
        #expect(isThere, "\(name)")
        named.insert(name)
      }
      for match in page.text.matches(of: #/IMAGEFETCH_[A-Z_]+[A-Z]/#) {
        let name = String(match.0.prefix { $0 != "=" })
        #expect(variables.contains(name), "\(name)")
      }
      for match in page.flowing.matches(of: #/`([a-z_.]+)` \(([^),]+)\)/#) {
        guard let key = keys[String(match.1)], match.2.first?.isNumber == true else { continue }
        #expect(key.defaultText == match.2, "\(match.0)")
      }
    }
    #expect(named.count >= 30)
  }

  @Test("the documentation uses no word of the API that is not in openapi.yaml")
  func words() {
    let contract =
      Readme.file("openapi.yaml") + Readme.file("clients/python/imagefetch.py")
      + Readme.file("Sources/SQL/Database/Schema.swift")
    for page in Documentation.pages {
      for word in page.ticked where word.wholeMatch(of: #/[a-z]+(_[a-z]+)+/#) != nil {
        // Another test checks metrics, and curl's variables do not belong to the service.
        if word.hasPrefix("imagefetch_") || word.hasPrefix("process_") { continue }
        if ["http_proxy", "https_proxy", "no_proxy"].contains(word) { continue }
        let isThere = contract.contains(word) || Documentation.sources.contains("\"\(word)\"")
        #expect(isThere, "\(word) in \(page.path)")
      }
    }
  }

  @Test("openapi.yaml and operating.md have each failure code, as in the table of failures")
  func codes() throws {
    let codes = FailureCode.allCases.map(\.rawValue)
    let listed = try #require(
      Readme.file("openapi.yaml").firstMatch(
        of: #/\n    FailureCode:\n.*\n.*\n      enum:\n((?:        - \w+\n)+)/#)?.1
    ).matches(of: #/\w+/#).map { String($0.0) }
    #expect(listed == codes, "the enum of the schema FailureCode in openapi.yaml")
    let rows = Documentation.operating.table("Why jobs fail")
    #expect(rows.map { $0[0] } == codes.map { "`\($0)`" }, "the table in docs/operating.md")
    for code in FailureCode.allCases {
      let row = rows.first { $0[0] == "`\(code.rawValue)`" }
      #expect(
        row?[2].replacing(#/\[([^\]]+)\]\([^)]+\)/#, with: { $0.1 }) == code.row.meaning,
        "\(code.rawValue) in docs/operating.md")
      let retried = row?[1].prefix(while: { $0 != "," })
      guard code != .originStatus else { continue }
      #expect(
        retried == (code.row.isRetryable ? "yes" : "no"), "\(code.rawValue) in docs/operating.md")
    }
    let statuses = (100..<600).filter {
      JobFailure.fetch(.originStatus($0, retryAfter: nil)).isRetryable
    }
    #expect(
      rows.first { $0[0] == "`origin_status`" }?[1]
        == statuses.map(String.init).joined(separator: ", "))
  }

  @Test("the documentation names the metrics that a service has")
  func metrics() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/photo.jpg", .ok(Fixtures.jpeg))
    // Some metrics exist only with certain settings.
    try await withService(["IMAGEFETCH_TRACING_ENDPOINT": origin.url("")]) { service in
      let id = try await service.submit(url: origin.url("/photo.jpg"))
      _ = try await service.finished(id)
      #expect(try await service.get("/jobs/\(id)/image?width=10").status == 200)
      _ = try await service.finished(service.submit(url: origin.url("/none.jpg")))
      var answer = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
      // Some metrics exist only for a shared store.
      try await Cluster.open(1) { cluster, origin in
        origin.on("/filed", .ok(Fixtures.filedPNG))
        #expect(try await cluster[0].run(["url": origin.url("/filed")]).phase == "success")
        answer += String(decoding: try await cluster[0].get("/metrics").body, as: UTF8.self)
      }
      let samples = Set(answer.matches(of: #/(?m)^([a-z_]+)[{ ]/#).map { String($0.1) })
      let families = Set(answer.matches(of: #/(?m)^# TYPE (\S+)/#).map { String($0.1) })
      #expect(families.count > 25)
      var named: Set<String> = []
      let monitoring = ["deploy/alerts.yaml", "deploy/grafana.json"].map(Readme.file)
      for text in Documentation.pages.map(\.text) + monitoring {
        for match in text.matches(of: #/\b(imagefetch|process)_[a-z_]*[a-z]/#) {
          named.insert(String(match.0))
        }
      }
      #expect(named.count >= 25)
      #expect(named.subtracting(samples.union(families)) == [])
      // The service itself describes the other metrics.
      for match in answer.matches(of: #/(?m)^# HELP (\S+) (.+)$/#) {
        let isSentence = match.2.hasSuffix(".") && match.2 != match.1
        #expect(isSentence, "\(match.0)")
      }
    }
  }

  @Test("the alert rules use existing phases, codes and statuses")
  func alerts() throws {
    let rules = Readme.file("deploy/alerts.yaml")
    let names = rules.matches(of: #/alert: (\w+)/#)
    #expect(names.count >= 8)
    _ = try Document(rules)
    for match in rules.matches(of: #/(\w+)="([^"]*)"/#) {
      switch match.1 {
      case "phase": #expect(Phase(rawValue: String(match.2)) != nil)
      case "code": #expect(FailureCode(rawValue: String(match.2)) != nil)
      case "status": #expect(ProblemCode.allCases.contains { "\($0.row.status.code)" == match.2 })
      case "job": #expect(match.2 == "imagefetch")
      case "outcome": #expect(match.2 == "failed")
      default: Issue.record("\(match.0)")
      }
    }
  }
}
