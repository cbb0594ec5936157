import Fetch
import Foundation
import Images
import Jobs
import SQL
import SQLite
import TestSupport
import Testing

/// Compares docs/architecture.md with the code.
@Suite("The architecture document")
struct ArchitectureTests {
  private static let page = Documentation.architecture

  @Test("the diagram has exactly the modules and imports of Package.swift")
  func modules() throws {
    let drawn = Self.page.section("Modules").matches(of: #/(?m)^(\w+) +─▶ (.+)$/#)
    var imports: [String: Set<String>] = [:]
    for line in drawn {
      let names = line.2.prefix(while: { $0 != "\n" }).split(separator: "  ").first ?? ""
      imports[String(line.1)] =
        names.hasPrefix("nothing")
        ? [] : Set(names.split(separator: ",").map { $0.trimmingCharacters(in: .whitespaces) })
    }
    let manifest = try Self.manifest()
    #expect(manifest.count >= 12)
    #expect(Set(imports.keys) == Set(manifest.keys))
    for (name, dependencies) in manifest { #expect(imports[name] == dependencies, "\(name)") }
  }

  /// The Swift targets of Sources/ with the project's targets that they depend on.
  private static func manifest() throws -> [String: Set<String>] {
    let text = Readme.file("Package.swift")
    let target =
      #/\.(?:executableTarget|target)\(\s*name: "(\w+)"(.*?)(?=\n    \.|\n\n|\n  \])/#
      .dotMatchesNewlines()
    var targets: [String: Set<String>] = [:]
    for match in text.matches(of: target) {
      let name = String(match.1)
      let files = try? FileManager.default.subpathsOfDirectory(
        atPath: Readme.root + "Sources/\(name)")
      guard let files, files.contains(where: { $0.hasSuffix(".swift") }) else { continue }
      let list = match.2.firstMatch(of: #/dependencies: \[([^\]]*)\]/#)?.1 ?? ""
      targets[name] = Set(list.matches(of: #/"(\w+)"/#).map { String($0.1) })
    }
    return targets
  }

  @Test("the document has all phases and their legal transitions", arguments: Phase.allCases)
  func phases(phase: Phase) throws {
    let names = Set(Phase.allCases.map(\.rawValue))
    let rows = Self.page.table("Phases")
    let row = try #require(rows.first { $0[0].contains("`\(phase.rawValue)`") })
    let told = Set(row[1].matches(of: #/`(\w+)`/#).map { String($0.1) }).intersection(names)
    let legal = Set(Phase.allCases.filter { phase.canBecome($0) }.map(\.rawValue))
    #expect(told == legal)
  }

  @Test("the document names only existing types and modules")
  func types() {
    let picture = Self.page.section("A job's path").matches(of: #/\b([A-Z][a-z]+){2,}\b/#)
    let ticked = Self.page.ticked.filter { $0.wholeMatch(of: #/[A-Z][a-z]+[A-Za-z]*/#) != nil }
    let named = Set(picture.map { String($0.0) } + ticked).subtracting(["Mutex"])
    #expect(named.count >= 25)
    let declarations = Documentation.sources.matches(
      of: #/\b(?:actor|class|struct|enum|protocol|typealias) ([A-Z]\w*)/#)
    let rooms = Self.names("Sources") + Self.names("Sources/Engine")
    #expect(named.subtracting(declarations.map { String($0.1) }).subtracting(rooms) == [])
  }

  @Test("the document has the engine's folders")
  func stages() {
    let folders = Self.names("Sources/Engine").filter { !$0.hasSuffix(".swift") }
    let told = Self.page.table("A job's path").compactMap { $0[0].firstMatch(of: #/`(\w+)`/#)?.1 }
    #expect(Set(told.map(String.init)) == Set(folders))
  }

  @Test("the engine's folders have no dependency cycle")
  func folders() throws {
    let graph = try FolderGraph(below: Readme.root + "Sources/Engine")
    #expect(graph.uses["."]?.keys.count ?? 0 >= 5, "the engine puts its stages together")
    #expect(graph.uses["Loading"]?["Queue"]?.contains("Dispatcher") == true)
    #expect(graph.cycle == nil, "\(graph.uses)")
    var above: Set<String> = []
    for row in Self.page.table("A job's path") {
      let folder = try #require(row[0].firstMatch(of: #/`(\w+)`/#).map { String($0.1) })
      let used = Set((graph.uses[folder] ?? [:]).keys)
      #expect(used.isSubset(of: above), "\(folder) uses \(used.subtracting(above))")
      above.insert(folder)
    }
  }

  /// Modules that store, fetch, decode and serve what they are asked to.
  private static let adapters = [
    "Codec", "Executors", "HTTP", "Images", "Isolation", "PostgreSQL", "S3", "SQL",
    "SQLite", "YAML",
  ]

  /// The types declared in the code that decide how much clients get and who is next, by their names.
  private static func policies(below folder: String) throws -> Set<String> {
    let words = [
      "Budget", "Fair", "Limiter", "Pacing", "Quota", "RoundRobin", "Semaphore", "ShareBounds",
      "Shares", "Throttle", "TokenBucket", "Turn",
    ]
    let code = try FolderGraph.code(below: Readme.root + "Sources/" + folder)
    let types = code.matches(of: #/\b(?:actor|class|struct|enum|protocol) (\w+)/#)
      .map { String($0.1) }
    return Set(types.filter { type in words.contains { type.contains($0) } })
  }

  @Test("adapters declare no types for rates, shares and turns")
  func policyTypes() throws {
    for module in Self.adapters {
      // `Pacing` groups the requests that share one transaction of PostgreSQL.
      #expect(try Self.policies(below: module).subtracting(["Pacing"]) == [], "\(module)")
    }
    let rules: Set = ["FairQueue", "FairShare", "ShareBounds", "TokenBucket"]
    #expect(try Self.policies(below: "Jobs/Fairness") == rules)
  }

  @Test("the check detects a cycle of folders, even an indirect one, and ignores comments")
  func cycles() {
    let (a, b) = (("A", "struct One { let two: Two }"), ("B", "final class Two {} // One"))
    #expect(FolderGraph([a, b]).cycle == nil)
    let c = ("C", "extension One { func three() {} }\npublic enum Three {}")
    #expect(FolderGraph([a, b, c]).cycle == nil)
    let back = ("B", "typealias Four = Three")
    #expect(Set(FolderGraph([a, b, c, back]).cycle ?? []) == ["A", "B", "C"])
  }

  @Test("the check detects a use of another folder's function, but not a method with its name")
  func functions() {
    let home = ("A", "func five<Value>(_ value: Value) {}\nprivate func six() {}")
    let call = ("B", "struct Two { func seven() async { await five(7) } } // six()")
    #expect(FolderGraph([home, call]).uses["B"]?["A"]?.contains("five") == true)
    let methods = ("B", "struct Two { func five() {}\n  func seven() { five(); six(); a.five() } }")
    #expect(FolderGraph([home, methods]).uses["B"]?.isEmpty == true)
    let back = ("A", "struct Eight { let two: Two }")
    #expect(FolderGraph([home, call, back]).cycle != nil)
  }

  @Test("the document answers twelve times where to begin, with at most eight files each")
  func beginnings() {
    let rows = Self.page.table("Where to begin")
    #expect(rows.count >= 12)
    #expect(Set(rows.map(\.first)).count == rows.count)
    for row in rows {
      let files = row[2].matches(of: #/\[([^\]]+)\]\(\.\.\/([^)]+)\)/#).map { ($0.1, String($0.2)) }
      #expect(1...8 ~= files.count, "\(row[0])")
      for (name, path) in files {
        #expect(path.hasSuffix(name), "\(path)")
        #expect(FileManager.default.fileExists(atPath: Readme.root + path), "\(path)")
      }
    }
  }

  private static func names(_ folder: String) -> [String] {
    (try? FileManager.default.contentsOfDirectory(atPath: Readme.root + folder)) ?? []
  }

  @Test("the document has exactly the tables of the job store")
  func tables() {
    let documented = Self.page.table("The job store").flatMap { row in
      row[0].matches(of: /`(\w+)`/).map { String($0.1) }
    }
    let created = Readme.file("Sources/SQL/Database/Schema.swift")
      .matches(of: #/CREATE TABLE (?:IF NOT EXISTS )?(\w+) /#).map { String($0.1) }
    #expect(documented.sorted() == created.sorted())
  }

  @Test("the document has the numbers of threads that the parts start")
  func threadCounts() throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let store = try SQLJobStore.Configuration(SQLiteDatabase(.init(path: folder + "/jobs.sqlite")))
    let documented = Dictionary(
      Self.page.table("Threads").map { ($0[0], $0[1]) }, uniquingKeysWith: { first, _ in first })
    #expect(documented["`store-read`"] == "\(store.readers)")
    #expect(documented["`store-images`"] == "\(FileImageStore.Configuration(path: "").threads)")
    let lookups = CurlFetcher.Configuration().maxLookups
    #expect(
      documented["`fetch-names`"]
        == "up to \(lookups) for current lookups, \(4 * lookups) including abandoned ones, and 1 as a reserve"
    )
  }

  @Test("the document has the threads of a running service")
  func threads() async throws {
    let told = Set(Self.page.table("Threads").compactMap { $0[0].firstMatch(of: #/`(.+)`/#)?.1 })
    #expect(told.count >= 7)
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/photo.jpg", .ok(Fixtures.jpeg))
    try await withService { service in
      _ = try await service.finished(service.submit(url: origin.url("/photo.jpg")))
      let folder = "/proc/\(service.processIdentifier)/task"
      let names = try FileManager.default.contentsOfDirectory(atPath: folder).compactMap {
        try? String(contentsOfFile: "\(folder)/\($0)/comm", encoding: .utf8).dropLast()
      }
      // One of them exists only during the start.
      #expect(told.subtracting(names).isSubset(of: ["decoders"]))
      // Swift's own threads and the main thread are not listed.
      let others = Set(names).subtracting(told).filter {
        !$0.contains("qos") && !$0.hasPrefix("imagefetch")
      }
      #expect(others == [])
    }
    #expect(Documentation.sources.contains("\"fetch-names\""))
  }
}
