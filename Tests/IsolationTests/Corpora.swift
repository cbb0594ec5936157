import Foundation
import Jobs

/// The public test images that .ci/corpora fetches.
enum Corpora {
  static let folder =
    String(#filePath.dropLast("Tests/IsolationTests/Corpora.swift".count)) + ".build-corpora/"
  static let isLong = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"

  /// The names of the image sets in .ci/corpora.txt for this kind of run.
  static func sets() throws -> [String] {
    let list = String(folder.dropLast(".build-corpora/".count)) + ".ci/corpora.txt"
    let lines = try String(contentsOfFile: list, encoding: .utf8).split(separator: "\n")
    let words = lines.map { $0.split(separator: " ").map(String.init) }
    return words.filter { $0[0] != "#" && (isLong || $0[1] == "short") }.map { $0[0] }
  }

  /// Files by name; each name begins with the name of its set.
  static func files() throws -> [(name: String, path: String)] {
    var files: [(name: String, path: String)] = []
    for set in try sets() {
      for name in try FileManager.default.subpathsOfDirectory(atPath: folder + set).sorted() {
        let path = "\(folder)\(set)/\(name)"
        var isFolder: ObjCBool = false
        let isThere = FileManager.default.fileExists(atPath: path, isDirectory: &isFolder)
        if isThere, !isFolder.boolValue, name != ".digest" {
          files.append(("\(set)/\(name)", path))
        }
      }
    }
    return files
  }

  /// Creates a folder for a run. The caller must remove it.
  static func makeFolder() throws -> String {
    let folder = NSTemporaryDirectory() + "corpora-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    return folder
  }

  /// Writes the results to the folder in `CORPORA_REPORT`.
  static func report(_ judged: [Judged], as name: String) throws {
    guard let folder = ProcessInfo.processInfo.environment["CORPORA_REPORT"] else { return }
    let lines = judged.map { one in
      let image = (try? one.result.get()).map { "\($0.format.rawValue) \($0.width)x\($0.height)" }
      return [
        one.name, Difference(one)?.word ?? "-", one.code, image ?? "\(one.result)",
        one.verdict.message ?? "-", one.verdict.worst.map { "\($0)" } ?? "-",
        one.verdict.mean.map { "\($0)" } ?? "-",
      ].joined(separator: "\t")
    }
    try lines.joined(separator: "\n").write(
      toFile: "\(folder)/\(name).tsv", atomically: true, encoding: .utf8)
  }
}
