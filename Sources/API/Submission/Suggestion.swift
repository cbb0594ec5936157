/// Finds the name that a misspelled name (a member, a key, a command) was probably meant to be.
package enum Suggestion {
  private static let farthest = 2

  /// Returns the most similar name; nil if none is similar enough.
  package static func name(for name: String, among names: [String]) -> String? {
    names.filter { abs($0.utf8.count - name.utf8.count) <= farthest }
      .map { (name: $0, distance: distance(name, $0)) }
      .filter { $0.distance <= farthest && $0.distance < $0.name.count - 1 }
      .min { $0.distance < $1.distance }?.name
  }

  /// The number of insertions, deletions, replacements and swaps of adjacent bytes that turn `a` into `b`.
  static func distance(_ a: String, _ b: String) -> Int {
    let (a, b) = (Array(a.utf8), Array(b.utf8))
    // Each row has the distances of one prefix of `a` to all prefixes of `b`: the current prefix, the one before, and
    // the one before that.
    var (row, above, twoAbove) = (Array(0...b.count), [Int](), [Int]())
    for i in a.indices {
      (twoAbove, above, row) = (above, row, [i + 1])
      for j in b.indices {
        let replaced = above[j] + (a[i] == b[j] ? 0 : 1)
        var best = min(replaced, above[j + 1] + 1, row[j] + 1)
        if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] {
          best = min(best, twoAbove[j - 1] + 1)
        }
        row.append(best)
      }
    }
    return row[b.count]
  }
}
