internal import Foundation
internal import Glibc

/// Removes the storage folder again if the start fails and the folder did not exist before.
struct CreatedFolder {
  private let path: String
  /// The folders of the path that did not exist, innermost first.
  private let missing: [String]

  /// Records which folders are missing. Call it before the folder is created.
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

  /// Deletes the folder and its empty parents, if they did not exist before.
  ///
  /// Call it only while the folder's lock is held: otherwise another service may be using the folder.
  func removeIfCreated() {
    guard missing.first == path else { return }
    try? FileManager.default.removeItem(atPath: path)
    // rmdir() does not remove a parent that another process has put files into.
    for folder in missing.dropFirst() { rmdir(folder) }
  }
}
