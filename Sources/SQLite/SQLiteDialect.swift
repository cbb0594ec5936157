/// Rewrites statements and table definitions from PostgreSQL's SQL to SQLite's.
///
/// The statements of the module SQL use only what both have and what these rules know. A test prepares each of them.
enum SQLiteDialect {
  /// Returns the text for SQLite.
  static func rewritten(_ sql: String) -> String {
    var text = sql
    // Rows are not locked one by one: a write transaction excludes all others.
    text.replace(
      /\s+FOR (?:NO KEY UPDATE|KEY SHARE|UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?/, with: "")
    text.replace(/::(?:bigint|bytea|uuid|int|text)/, with: "")
    text.replace(/\bgreatest\(/, with: "max(")
    text.replace(/\bleast\(/, with: "min(")
    // Arrays.
    text.replace(/= ANY \((\$\d+)\)/) { "IN (SELECT c1 FROM elements(\($0.1)))" }
    text.replace(/<> ALL \((\$\d+)\)/) { "NOT IN (SELECT c1 FROM elements(\($0.1)))" }
    text.replace(/unnest\(([^)]*)\)\s+AS (\w+) \(([^)]*)\)/) { match in
      let names = match.3.split(separator: ",").enumerated().map { index, name in
        "c\(index + 1) AS \(name.filter { !$0.isWhitespace })"
      }
      return "(SELECT \(names.joined(separator: ", ")) FROM elements(\(match.1))) AS \(match.2)"
    }
    text.replace(/SELECT \* FROM unnest\(([^)]*)\)/) { match in
      let columns = (1...match.1.split(separator: ",").count).map { "c\($0)" }
      return "SELECT \(columns.joined(separator: ", ")) FROM elements(\(match.1))"
    }
    text.replace(/\$(\d+)/) { "?\($0.1)" }
    return text.contains("CREATE TABLE") ? tables(text) : text
  }

  /// Rewrites table definitions.
  private static func tables(_ sql: String) -> String {
    var text = sql
    text.replace(#/ WITH \([^;]*\);/#, with: ";")
    text.replace(
      "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", with: "INTEGER PRIMARY KEY AUTOINCREMENT")
    text.replace("bigint PRIMARY KEY", with: "INTEGER PRIMARY KEY")
    text.replace(/\b(?:bigint|smallint|int|boolean)\b/, with: "INTEGER")
    text.replace(/\b(?:bytea|uuid)\b/, with: "BLOB")
    text.replace(/\btext\b/, with: "TEXT")
    // Tables with large values keep them apart from the index of their keys.
    text.replace(/CREATE TABLE ([^;]*)\)(;|$)/) { match in
      let isLarge =
        match.1.contains("INTEGER PRIMARY KEY") || match.1.contains(/\b(record|bytes) BLOB/)
      return "CREATE TABLE \(match.1)) STRICT\(isLarge ? "" : ", WITHOUT ROWID")\(match.2)"
    }
    return text
  }
}
