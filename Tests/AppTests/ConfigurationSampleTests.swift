import App
import Foundation
import Testing

@Suite("The sample configuration")
struct ConfigurationSampleTests {
  /// Its text, and the text with every commented key taken in.
  static let sample: String = {
    let root = URL(filePath: #filePath).deletingLastPathComponent()
      .deletingLastPathComponent().deletingLastPathComponent()
    let url = root.appending(path: "deploy/imagefetch.yaml")
    return (try? String(contentsOf: url, encoding: .utf8)) ?? ""
  }()
  static let uncommented = sample.replacing(/(?m)^( *)#([a-z])/) { "\($0.1)\($0.2)" }

  @Test("is the defaults as it stands")
  func commented() throws {
    #expect(try Configuration.load(yaml: Self.sample, name: "sample") == Configuration())
  }

  @Test("is the defaults with every key taken in")
  func takenIn() throws {
    #expect(Self.uncommented != Self.sample)
    #expect(try Configuration.load(yaml: Self.uncommented, name: "sample") == Configuration())
  }

  @Test("has each key with its bounds", arguments: Configuration.keys.map(\.path))
  func complete(path: String) throws {
    let key = try #require(Configuration.keys.first { $0.path == path })
    let (comment, value) = try #require(entry(of: path), "\(path) is not in the sample")
    #expect(!value.isEmpty)
    #expect(comment.contains("[\(key.takes)]"))
  }

  @Test("has no key that is not there")
  func nothingElse() {
    let found = Self.uncommented.split(separator: "\n").count { line in
      line.wholeMatch(of: #/ *[a-z_]+: .+/#) != nil && !line.contains("#")
    }
    #expect(found == Configuration.keys.count)
  }

  /// The lines of explanation right above a key, joined, and its value.
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
