import Foundation
import Testing

/// `.ci/test-executable` runs the tests that start the executable with the one that is shipped.
@Suite("The tests of the shipped executable")
struct TestedSuitesTests {
  private static let script = Readme.file(".ci/test-executable")

  /// The words of an array of the script, without its comments.
  private static func list(_ name: String) throws -> [String] {
    let pattern = try Regex("(?ms)^\(name)=\\((.*?)\\)$", as: (Substring, Substring).self)
    let lines = try #require(script.firstMatch(of: pattern)).1.split(separator: "\n")
    return lines.flatMap { $0.prefix { $0 != "#" }.split(separator: " ").map(String.init) }
  }

  @Test("are all of the targets that depend on it")
  func targets() throws {
    let target = #/\.testTarget\(\s*name: "(\w+)",\s*dependencies: \[([^\]]*)\]/#
    let targets = Readme.file("Package.swift").matches(of: target)
    #expect(targets.count > 10)
    let dependent = targets.filter { $0.2.contains("\"imagefetch\"") }.map { String($0.1) }
    #expect(try Self.list("targets").sorted() == dependent.sorted())
  }

  @Test("leave out only suites that do not start it")
  func skipped() throws {
    let starts =
      #/\b(?:RunningService\(|withService\b|withPipeline\b|withCluster\b|CommandRun\(|GetCommand\b|BuiltProgram\.imagefetch|RunningService\.executable|withVisitor\b|IsolatedCodec \{|IsolatedCodec\()/#
    for suite in try Self.list("skipped") {
      let files = try Self.list("targets").flatMap { target -> [String] in
        let folder = "Tests/" + target
        let all = FileManager.default.enumerator(atPath: Readme.root + folder)
        return (all?.compactMap { $0 as? String } ?? []).map { folder + "/" + $0 }
      }
      let texts = files.map(Readme.file).filter { $0.contains("struct \(suite) ") }
      let text = try #require(texts.first, "there is no suite \(suite)")
      // Or it says which other program it starts.
      #expect(!text.contains(starts) || text.contains("BuiltProgram.path("), "\(suite)")
    }
  }
}
