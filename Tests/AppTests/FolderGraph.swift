import Foundation

/// Which folders of a source tree use types and functions that other folders declare. Comments don't count.
struct FolderGraph {
  /// By folder: the folders that it uses, each with what of it.
  private(set) var uses: [String: [String: Set<String>]] = [:]

  /// - Parameter files: each with its folder.
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
      // A folder that has a function or a method of that name calls its own.
      for name in Self.names(in: code).subtracting(functions[folder] ?? []) {
        guard let home = homes[name], !home.contains(folder) else { continue }
        for other in home { uses[folder, default: [:]][other, default: []].insert(name) }
      }
    }
  }

  /// All that lies in a folder and in the folders inside it; files beside those are in the folder ".".
  init(below root: String) throws {
    var files: [(folder: String, text: String)] = []
    for path in try FileManager.default.subpathsOfDirectory(atPath: root)
    where path.hasSuffix(".swift") {
      let folder = path.contains("/") ? String(path.prefix { $0 != "/" }) : "."
      files.append((folder, try String(contentsOfFile: root + "/" + path, encoding: .utf8)))
    }
    self.init(files)
  }

  /// Folders of which each uses the next, and the last one the first; nil where there are none such.
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

  /// Types that a file names, and functions that it calls other than as somebody's methods.
  private static func names(in code: String) -> Set<String> {
    let types = code.matches(of: #/\b[A-Z]\w*/#).map { String($0.0) }
    let calls = code.matches(of: #/(\.|func )?\b([a-z]\w*)\(/#).filter { $0.1 == nil }
    return Set(types + calls.map { String($0.2) })
  }

  /// Types and functions that a file declares at its outermost level, for others to use.
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
