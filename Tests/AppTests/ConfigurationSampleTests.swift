import App
import Foundation
import Testing

@Suite("The sample configuration")
struct ConfigurationSampleTests {
  /// The file's text. `uncommented` is the text with every commented key enabled.
  static let sample: String = {
    let root = URL(filePath: #filePath).deletingLastPathComponent()
      .deletingLastPathComponent().deletingLastPathComponent()
    let url = root.appending(path: "deploy/imagefetch.yaml")
    return (try? String(contentsOf: url, encoding: .utf8)) ?? ""
  }()
  static let uncommented = sample.replacing(/(?m)^( *)#([a-z])/) { "\($0.1)\($0.2)" }

  @Test("the file as it is equals the defaults")
  func commented() throws {
    #expect(try Configuration.load(yaml: Self.sample, name: "sample") == Configuration())
  }

  @Test("the file with every key enabled equals the defaults")
  func takenIn() throws {
    #expect(Self.uncommented != Self.sample)
    #expect(try Configuration.load(yaml: Self.uncommented, name: "sample") == Configuration())
  }

  @Test("the file has each key with its limits", arguments: Configuration.keys.map(\.path))
  func complete(path: String) throws {
    let key = try #require(Configuration.keys.first { $0.path == path })
    let (comment, value) = try #require(entry(of: path), "\(path) is not in the sample")
    #expect(!value.isEmpty)
    #expect(comment.contains("[\(key.allowedValues)]"))
  }

  @Test("the file has no unknown key")
  func nothingElse() {
    let found = Self.uncommented.split(separator: "\n").count { line in
      line.wholeMatch(of: #/ *[a-z_]+: .+/#) != nil && !line.contains("#")
    }
    #expect(found == Configuration.keys.count)
  }

  /// Returns the explanation directly above a key and the key's value.
  private func entry(of path: String) -> (comment: String, value: String)? {
    var sections: [Substring] = []
    var comment: [String] = []
    for line in Self.uncommented.split(separator: "\n") {
      let text = line.drop { $0 == " " }
      let depth = (line.count - text.count) / 2
      if text.hasPrefix("#") {
        comment.append(String(text.dropFirst(2)))
        continue
      }
      defer { comment = [] }
      guard let colon = text.firstIndex(of: ":") else { continue }
      sections = sections.prefix(depth) + [text[..<colon]]
      guard sections.joined(separator: ".") == path else { continue }
      return (comment.joined(separator: " "), String(text[colon...].dropFirst(2)))
    }
    return nil
  }
}
