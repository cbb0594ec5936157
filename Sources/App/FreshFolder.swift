internal import Foundation
internal import Glibc

/// A folder that a start makes, which a start that fails takes back.
struct FreshFolder {
  private let path: String
  /// Those that were not there, the innermost first.
  private let missing: [String]

  /// Before it is made.
  init(_ path: String) {
    self.path = path
    var missing: [String] = []
    var rest = path[...]
    while !rest.isEmpty, access(String(rest), F_OK) != 0, errno == ENOENT {
      missing.append(String(rest))
      let slash = rest.lastIndex(of: "/") ?? rest.startIndex
      rest = rest[..<slash]
      while rest.hasSuffix("/") { rest.removeLast() }
    }
    self.missing = missing
  }

  /// Only while its lock is held: else it may be another service's by now.
  func takeBack() {
    guard missing.first == path else { return }
    try? FileManager.default.removeItem(atPath: path)
    // Those around it may have been given to somebody else meanwhile.
    for folder in missing.dropFirst() { rmdir(folder) }
  }
}
