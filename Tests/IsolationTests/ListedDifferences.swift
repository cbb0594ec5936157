import Foundation
import Glibc

/// A list in Tests/Fixtures. Each line has a difference, how often it occurs (* for any number), a pattern of file
/// names, and the reason.
struct ListedDifferences {
  struct Line {
    var word: String
    var count: Int?
    var pattern: String
  }

  let lines: [Line]

  init(_ name: String) throws {
    let path =
      String(#filePath.dropLast("IsolationTests/ListedDifferences.swift".count))
      + "Fixtures/\(name)"
    lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
      .filter { !$0.hasPrefix("#") }
      .map { line in
        let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
        guard cells.count == 4, cells[1] == "*" || Int(cells[1]) != nil, !cells[3].isEmpty else {
          throw CocoaError(.fileReadCorruptFile)
        }
        return Line(word: cells[0], count: Int(cells[1]), pattern: cells[2])
      }
  }

  /// Returns unlisted differences, and listed ones that occur another number of times.
  /// - Parameter isLookedAt: whether the files of a pattern were tested.
  func mistakes(in found: [(name: String, word: String)], where isLookedAt: (String) -> Bool)
    -> [String]
  {
    var counts = [Int](repeating: 0, count: lines.count)
    var mistakes: [String] = []
    for (name, word) in found {
      let line = lines.firstIndex { $0.word == word && fnmatch($0.pattern, name, 0) == 0 }
      if let line { counts[line] += 1 } else { mistakes.append("not listed: \(word) | \(name)") }
    }
    for (line, count) in zip(lines, counts) where isLookedAt(line.pattern) {
      guard let expected = line.count, expected != count else { continue }
      mistakes.append("\(line.word) | \(line.pattern): \(count) and not \(expected)")
    }
    return mistakes
  }
}
