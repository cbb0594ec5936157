import App
import Foundation
import Settings
import Testing

/// Compares deploy/imagefetch.yaml and the table of docs/configuration.md with the declared keys. With
/// UPDATE_CONFIGURATION=1 in the environment (`make configuration`) the tests write them instead.
@Suite("The sample configuration")
struct ConfigurationSampleTests {
  @Test("the file is made from the declared keys")
  func sample() throws {
    if try write(ConfigurationSample.yaml, to: "deploy/imagefetch.yaml") { return }
    let lines = Readme.file("deploy/imagefetch.yaml").split(separator: "\n")
    for (line, made) in zip(lines, ConfigurationSample.yaml.split(separator: "\n")) {
      try #require(line == made, "run make configuration")
    }
    #expect(Readme.file("deploy/imagefetch.yaml") == ConfigurationSample.yaml)
  }

  @Test("docs/configuration.md has the table of the declared keys")
  func table() throws {
    let page = Readme.file("docs/configuration.md")
    let head = try #require(page.firstRange(of: "---|---|---\n"))
    let end = page[head.upperBound...].firstRange(of: "\n\n")?.lowerBound ?? page.endIndex
    let made = ConfigurationSample.table
    let text = "\(page[..<head.upperBound])\(made.joined(separator: "\n"))\(page[end...])"
    if try write(text, to: "docs/configuration.md") { return }
    let rows = page[head.upperBound..<end].split(separator: "\n").map(String.init)
    #expect(rows == made, "run make configuration")
  }

  @Test("every key belongs to a section, is explained, and is the only one with its name")
  func declarations() {
    #expect(Configuration.keys.count == Configuration.allKeys.count)
    #expect(Set(Configuration.keys.map(\.path)).count == Configuration.keys.count)
    for key in Configuration.keys {
      #expect(key.doc.split(separator: "\n").first?.last == ".", "\(key.path)")
    }
  }

  @Test("the file as it is, and with every key enabled, equals the defaults")
  func defaults() throws {
    let sample = ConfigurationSample.yaml
    let enabled = sample.replacing(#/(?m)^( *)#([a-z])/#) { "\($0.1)\($0.2)" }
    #expect(enabled != sample)
    for text in [sample, enabled] {
      #expect(try Configuration.load(yaml: text, name: "sample") == Configuration())
    }
  }

  /// Writes a file if that is wanted, and returns whether it is.
  private func write(_ text: String, to path: String) throws -> Bool {
    let isWanted = ProcessInfo.processInfo.environment["UPDATE_CONFIGURATION"] == "1"
    if isWanted { try Data(text.utf8).write(to: URL(filePath: Readme.root + path)) }
    return isWanted
  }
}
