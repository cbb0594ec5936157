/// Finds steps of a query plan that read a whole large table (https://www.sqlite.org/eqp.html).
enum FullScan {
  private static let tables: Set<String> = [
    "jobs", "queue", "cache", "images", "contents", "tags", "keys", "messages", "rejected_lines",
    "batches",
  ]

  /// Whether a step of the statement's plan reads a whole large table or a whole index of one.
  /// - Parameters:
  ///   - plan: All steps.
  ///   - partial: The indexes that contain only some rows. Reading one of them is not a full scan.
  static func isFullScan(
    _ step: String, in plan: [String], of sql: String, _ partial: Set<String>
  ) -> Bool {
    guard
      let match = step.wholeMatch(
        of:
          /(SCAN|SEARCH) (\w+)(?: USING (.*?INDEX|PRIMARY KEY|INTEGER PRIMARY KEY)(?: (\w+))?)?(.*)/
      ),
      names(of: sql).contains(String(match.2))
    else { return false }
    let (isSearch, how, index) = (match.1 == "SEARCH", match.3, match.4.map { String($0) })
    // A search without an index looks for the smallest or greatest value of a column; `number` is the rowid.
    guard let how else {
      return isSearch
        ? !sql.contains("max(number)") : !readsFirstRows(of: String(match.2), sql, plan)
    }
    if how.contains("AUTOMATIC") { return true }
    return !isSearch && !(index.map(partial.contains) ?? false) && !sql.contains("LIMIT")
  }

  /// Whether the statement reads the first rows in the order of the key, without a condition. The rowids of `cache` are in
  /// order of age.
  private static func readsFirstRows(of table: String, _ sql: String, _ plan: [String]) -> Bool {
    table == "cache" && sql.contains("ORDER BY number LIMIT")
      || sql.wholeMatch(of: /SELECT [\w, ]* FROM \w+ +ORDER BY [\w, ]* LIMIT \d+/) != nil
        && !plan.contains { $0.contains("TEMP B-TREE") }
  }

  /// The names and aliases of large tables in a statement.
  private static func names(of sql: String) -> Set<String> {
    var names = tables
    for match in sql.matches(of: /\b(\w+) (?:AS )?(\w+)/) where tables.contains(String(match.1)) {
      names.insert(String(match.2))
    }
    return names
  }
}
