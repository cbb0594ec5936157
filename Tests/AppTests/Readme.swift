import Foundation

/// The text of the README, split into parts that can be checked.
enum Readme {
  static let root = String(#filePath.dropLast("Tests/AppTests/Readme.swift".count))
  static let text = file("README.md")

  static func file(_ name: String) -> String {
    (try? String(contentsOfFile: root + name, encoding: .utf8)) ?? ""
  }

  /// The text under a second-level heading.
  static func section(_ title: String, of text: String = text) -> String {
    guard let start = text.range(of: "\n## \(title)\n") else { return "" }
    let rest = text[start.upperBound...]
    return String(rest[..<(rest.range(of: "\n## ")?.lowerBound ?? rest.endIndex)])
  }

  /// A block of commands, and the block with their output if it follows directly.
  struct Step {
    var commands: String
    var answer: Answer?
  }

  /// The shown output: `json`, `http` or `text`.
  struct Answer {
    var kind: String
    var text: String
  }

  /// A block that is a file for the reader. Its first line is a comment that begins with the file's name.
  struct Program {
    var name: String
    var text: String

    init?(_ text: String) {
      guard let match = text.prefixMatch(of: #/(#|//) ([a-z]+\.[a-z]+)\b/#) else { return nil }
      (name, self.text) = (String(match.2), text + "\n")
    }
  }

  /// The programs of a section, in order.
  static func programs(of section: String) -> [Program] {
    section.matches(of: block).compactMap { Program(String($0.2)) }
  }

  /// The steps of a section in order, without its programs.
  static func steps(of section: String) -> [Step] {
    var steps: [Step] = []
    var end: String.Index?
    for block in section.matches(of: block) {
      let (kind, text) = (String(block.1), String(block.2))
      if Program(text) != nil { continue }
      if kind == "sh" {
        steps.append(Step(commands: text))
      } else if let end, section[end..<block.range.lowerBound] == "\n", !steps.isEmpty {
        steps[steps.count - 1].answer = Answer(kind: kind, text: text)
      }
      end = block.range.upperBound
    }
    return steps
  }

  private static var block: Regex<(Substring, Substring, Substring)> {
    #/(?ms)^```([a-z]+)\n(.*?)\n```$/#
  }
}
