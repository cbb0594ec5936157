/// What somebody may have meant who wrote a name that is not there: a member, a key, a command.
public enum Suggestion {
  /// ` Did you mean url?`, to follow a sentence, or nothing when no name is near.
  static func sentence(for name: String, among names: [String]) -> String {
    self.name(for: name, among: names).map { " Did you mean \($0)?" } ?? ""
  }

  /// The nearest name; nil when none is near.
  public static func name(for name: String, among names: [String]) -> String? {
    guard name.utf8.count <= 100 else { return nil }
    return names.map { (name: $0, distance: distance(name, $0)) }
      .filter { $0.distance <= 2 && $0.distance < $0.name.count - 1 }
      .min { $0.distance < $1.distance }?.name
  }

  /// Insertions, deletions, replacements and swaps of neighbours that turn one into the other.
  static func distance(_ a: String, _ b: String) -> Int {
    let (a, b) = (Array(a.utf8), Array(b.utf8))
    var rows = [Array(0...b.count)]
    for i in a.indices {
      var row = [i + 1]
      for j in b.indices {
        let replaced = rows[i][j] + (a[i] == b[j] ? 0 : 1)
        var best = min(replaced, rows[i][j + 1] + 1, row[j] + 1)
        if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] {
          best = min(best, rows[i - 1][j - 1] + 1)
        }
        row.append(best)
      }
      rows.append(row)
    }
    return rows[a.count][b.count]
  }
}
