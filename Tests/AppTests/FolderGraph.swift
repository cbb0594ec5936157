import Foundation

/// A graph of folders. An edge means that a folder uses types or functions that another folder declares.
/// Comments do not count.
struct FolderGraph {
  /// For each folder: the folders that it uses, with the names used.
  private(set) var uses: [String: [String: Set<String>]] = [:]

  /// - Parameter files: Each file's folder and text.
  init(_ files: [(folder: String, text: String)]) {
    let codes = files.map { (folder: $0.folder, code: Self.withoutComments($0.text)) }
    var homes: [String: Set<String>] = [:]
    var functions: [String: Set<String>] = [:]
    for (folder, code) in codes {
      for name in Self.declarations(in: code) { homes[name, default: []].insert(folder) }
      functions[folder, default: []].formUnion(
        code.matches(of: #/\bfunc (\w+)/#).map { String($0.1) })
    }
    for (folder, code) in codes {
      uses[folder, default: [:]].merge([:]) { first, _ in first }
      // A call refers to the folder's own function or method if it has one with this name.
      for name in Self.names(in: code).subtracting(functions[folder] ?? []) {
        guard let home = homes[name], !home.contains(folder) else { continue }
        for other in home { uses[folder, default: [:]][other, default: []].insert(name) }
      }
    }
  }

  /// Reads all files below a folder. Files directly in it belong to the folder ".".
  init(below root: String) throws {
    var files: [(folder: String, text: String)] = []
    for path in try FileManager.default.subpathsOfDirectory(atPath: root)
    where path.hasSuffix(".swift") {
      let folder = path.contains("/") ? String(path.prefix { $0 != "/" }) : "."
      files.append((folder, try String(contentsOfFile: root + "/" + path, encoding: .utf8)))
    }
    self.init(files)
  }

  /// The text of all files below a folder, without comments.
  static func code(below root: String) throws -> String {
    try FileManager.default.subpathsOfDirectory(atPath: root).filter { $0.hasSuffix(".swift") }
      .map { withoutComments(try String(contentsOfFile: root + "/" + $0, encoding: .utf8)) }
      .joined(separator: "\n")
  }

  /// A cycle of folders, in which each uses the next and the last uses the first. Nil if there is none.
  var cycle: [String]? {
    var done: Set<String> = []
    func search(_ folder: String, _ path: [String]) -> [String]? {
      if let start = path.firstIndex(of: folder) { return Array(path[start...]) }
      guard !done.contains(folder) else { return nil }
      for next in (uses[folder] ?? [:]).keys.sorted() {
        if let found = search(next, path + [folder]) { return found }
      }
      done.insert(folder)
      return nil
    }
    for folder in uses.keys.sorted() {
      if let found = search(folder, []) { return found }
    }
    return nil
  }

  /// The types that a file names, and the functions that it calls without a receiver.
  private static func names(in code: String) -> Set<String> {
    let types = code.matches(of: #/\b[A-Z]\w*/#).map { String($0.0) }
    let calls = code.matches(of: #/(\.|func )?\b([a-z]\w*)\(/#).filter { $0.1 == nil }
    return Set(types + calls.map { String($0.2) })
  }

  /// The types and functions that a file declares at the top level for other files.
  private static func declarations(in code: String) -> [String] {
    let declaration =
      #/(?m)^(?:(?:public|package|internal|final|indirect) )*(?:actor|class|struct|enum|protocol|typealias|func) (\w+)/#
    return code.matches(of: declaration).map { String($0.1) }
  }

  private static func withoutComments(_ text: String) -> String {
    text.split(separator: "\n", omittingEmptySubsequences: false).map { line in
      line.firstRange(of: "//").map { line[..<$0.lowerBound] } ?? line
    }.joined(separator: "\n")
  }
}
