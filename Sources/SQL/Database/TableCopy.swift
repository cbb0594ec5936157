package import Jobs

// The copy of all rows from one database to another, for `imagefetch migrate --from`.
//
// Input: pages of rows from the source. Output: the same rows in the target. `StoreMove` reads the pages in turn and copies the
// files of images.

/// A table of ``Schema``.
package struct CopiedTable: Sendable, Equatable {
  package let name: String
  var columns: [Column] = []
  /// The numbers of the primary key's columns, in its order.
  var key: [Int] = []

  struct Column: Sendable, Equatable {
    let name: String
    /// The type, such as `bigint`.
    let type: String
  }
}

/// Some rows of a table, by columns.
package struct TablePage: Sendable {
  package let table: CopiedTable
  /// The number of rows.
  package let count: Int
  /// The number of rows that are left out because they have no valid id.
  package let unreadable: Int
  let columns: [SQLValue]
  /// The primary key of the last row.
  package let last: [SQLValue]

  /// Reads the rows of a query for all columns of the table. There is at least one row.
  fileprivate init(_ table: CopiedTable, _ rows: Rows) {
    self.table = table
    let ids = table.columns.indices.filter { table.columns[$0].type == "uuid" }
    let valid = rows.all.filter { row in ids.allSatisfy { rows.id(row, $0) != nil } }
    (count, unreadable) = (valid.count, rows.count - valid.count)
    columns = table.columns.enumerated().map { column, kind in
      switch kind.type {
      case "uuid": .ids(valid.compactMap { rows.id($0, column) })
      case "bytea": .byteStrings(valid.map { rows.bytes($0, column) })
      case "boolean": .bools(valid.map { rows.bool($0, column) })
      default: .ints(valid.map { rows.int($0, column) })
      }
    }
    last = table.key.map { column in
      switch table.columns[column].type {
      case "uuid", "bytea": .bytes(rows.bytes(rows.count - 1, column))
      default: .int(rows.int(rows.count - 1, column))
      }
    }
  }

  /// The images of a page of the table `images`, except those that are being deleted.
  package var images: [CopiedImage] {
    guard case .byteStrings(let digests)? = column("digest"),
      case .ints(let sizes)? = column("bytes"),
      case .ints(let generations)? = column("generation"),
      case .bools(let leaving)? = column("leaving"), case .ints(let contents)? = column("content")
    else { return [] }
    return (0..<count).compactMap { row in
      guard !leaving[row], let digest = digests[row].flatMap({ ImageDigest(bytes: $0) }) else {
        return nil
      }
      return CopiedImage(
        name: ImageName(digest, generation: generations[row] ?? 0), bytes: Int(sizes[row] ?? 0),
        isEmbedded: contents[row] != nil)
    }
  }

  private func column(_ name: String) -> SQLValue? {
    table.columns.firstIndex { $0.name == name }.map { columns[$0] }
  }
}

/// A row of the table `images`.
package struct CopiedImage: Sendable {
  package let name: ImageName
  /// The size in bytes.
  package let bytes: Int
  /// Whether the bytes are in the database, in the table `contents`.
  package let isEmbedded: Bool
}

extension Schema {
  /// The tables, as the steps define them.
  static var tables: [CopiedTable] {
    steps.joined().matches(
      of: #/CREATE TABLE (\w+) \((.*?)\)( WITH \([^)]*\))?;/#.dotMatchesNewlines()
    )
    .map { match in
      var table = CopiedTable(name: String(match.1))
      var definition = String(match.2)
      var key: [Substring] = []
      // The columns of a key are separated by commas too.
      definition.replace(#/(PRIMARY KEY|UNIQUE) \(([^)]*)\)/#) { list in
        if list.1 == "PRIMARY KEY" { key = list.2.split(separator: ", ") }
        return ""
      }
      for line in definition.split(separator: ",") {
        let words = line.split(whereSeparator: \.isWhitespace)
        guard words.count >= 2 else { continue }
        if line.contains("PRIMARY KEY") { key = [words[0]] }
        table.columns.append(.init(name: String(words[0]), type: String(words[1])))
      }
      table.key = key.compactMap { name in table.columns.firstIndex { $0.name == name } }
      return table
    }
  }

  /// Tables that belong to one database: its name and image store, and the processes that use it.
  private static let uncopied: Set = ["settings", "instances", "reservations"]

  fileprivate static var copied: [CopiedTable] { tables.filter { !uncopied.contains($0.name) } }
}

/// The source of a copy. No other process uses it.
extension SQLJobStore {
  /// The tables to copy, in order.
  package static var copiedTables: [CopiedTable] { Schema.copied }

  /// Returns a mark of the current contents. It changes when an instance registers.
  package func markForCopy() async throws(StoreError) -> CopyMark {
    try await write { transaction in
      let last = try transaction.execute("SELECT coalesce(max(number), 0) FROM instances").int(0, 0)
      let new = CopyMark(lastInstance: last ?? 0)
      try transaction.execute(
        "INSERT INTO settings (name, value) VALUES ('marked', $1) ON CONFLICT DO NOTHING",
        [.bytes(Array(new.text.utf8))])
      return CopyMark(text: try transaction.setting("marked") ?? new.text)
    }
  }

  /// Returns the next rows in the order of the primary key; nil after the last one.
  /// - Parameter key: ``TablePage/last`` of the page before; nil for the first page.
  package func page(
    of table: CopiedTable, after key: [SQLValue]?, count: Int
  ) async throws(StoreError) -> TablePage? {
    let columns = table.columns.map(\.name).joined(separator: ", ")
    let names = table.key.map { table.columns[$0].name }.joined(separator: ", ")
    let parameters = (key ?? []).indices.map { "$\($0 + 1)" }.joined(separator: ", ")
    let condition = key == nil ? "" : "WHERE (\(names)) > (\(parameters))"
    return try await read { transaction in
      let rows = try transaction.execute(
        "SELECT \(columns) FROM \(table.name) \(condition) ORDER BY \(names) LIMIT \(count)",
        key ?? [])
      return rows.isEmpty ? nil : TablePage(table, rows)
    }
  }
}

/// A mark of the contents of a database: a random number, and the number of the last instance that used it.
package struct CopyMark: Sendable, Equatable {
  let text: String

  fileprivate init(text: String) { self.text = text }

  fileprivate init(lastInstance: Int64) {
    text = "\(UInt64.random(in: .min ... .max)).\(lastInstance)"
  }

  fileprivate var lastInstance: Int64 { text.split(separator: ".").last.flatMap { Int64($0) } ?? 0 }
}

/// The target of a copy. No service can start on it until the copy is complete.
extension SQLJobStore {
  /// Begins a copy, or continues an interrupted one.
  /// - Parameter mark: names the source's contents, see ``markForCopy()``.
  /// - Returns: Why the database can't be a target: it is in use, is not empty, or contains a part of something else. Nil
  ///   if it can.
  package func beginCopy(of mark: CopyMark) async throws(StoreError) -> String? {
    try await write { transaction in
      try transaction.lock(.schema)
      if try transaction.setting(CopySetting.complete) == mark.text {
        return "the folder was moved to this database already"
      }
      let users = try transaction.execute(
        "SELECT 1 FROM instances WHERE NOT ended AND lease_until > lease_moment($1)",
        [transaction.moment])
      guard users.isEmpty else { return "a service uses the database. Stop it first" }
      if let begun = try transaction.setting(CopySetting.begun) {
        return begun == mark.text
          ? nil
          : """
          the database contains a part of another folder, or of this folder before a service used it again. Move to a \
          new database
          """
      }
      for table in Schema.copied {
        guard try transaction.execute("SELECT 1 FROM \(table.name) LIMIT 1").isEmpty else {
          return "the database is not empty. Move to a new one"
        }
      }
      try transaction.execute(
        "INSERT INTO settings (name, value) VALUES ('\(CopySetting.begun)', $1)",
        [.bytes(Array(mark.text.utf8))])
      return nil
    }
  }

  /// Inserts the rows that the database does not have yet.
  /// - Returns: The number of new rows.
  package func insert(_ page: TablePage) async throws(StoreError) -> Int {
    let table = page.table
    let columns = table.columns.map(\.name).joined(separator: ", ")
    let parameters = table.columns.indices.map { "$\($0 + 1)" }.joined(separator: ", ")
    return try await write { transaction in
      try transaction.execute(
        """
        INSERT INTO \(table.name) (\(columns)) SELECT * FROM unnest(\(parameters)) WHERE true ON CONFLICT DO NOTHING
        """, page.columns
      ).changes
    }
  }

  /// Returns which of these images the database has.
  package func knownImages(_ images: [ImageDigest]) async throws(StoreError) -> Set<ImageDigest> {
    try await read { transaction in
      let rows = try transaction.execute(
        "SELECT digest FROM images WHERE digest = ANY ($1)", [.byteStrings(images.map(\.bytes))])
      return Set(rows.all.compactMap { rows.digest($0, 0) })
    }
  }

  /// Ends the copy, so that services can start.
  package func endCopy(of mark: CopyMark) async throws(StoreError) {
    let numbering = numbering(after: mark.lastInstance)
    try await write { transaction in
      if !numbering.isEmpty { try transaction.run(numbering) }
      try transaction.execute("DELETE FROM settings WHERE name = '\(CopySetting.complete)'")
      try transaction.execute(
        "UPDATE settings SET name = '\(CopySetting.complete)' WHERE name = '\(CopySetting.begun)'")
    }
  }
}

/// The settings of a target that contain the mark of the source: while a copy is incomplete, and afterwards.
private enum CopySetting {
  static let (begun, complete) = ("copying", "copied")
}

extension Transaction {
  /// - Throws: `.unavailable` if the database contains only a part of what was to be copied.
  func checkCopyIsComplete() throws {
    guard try setting(CopySetting.begun) == nil else {
      throw StoreError.unavailable(
        detail: "a move to this database is not complete: run imagefetch migrate --from again")
    }
  }

  fileprivate func setting(_ name: String) throws -> String? {
    let rows = try execute("SELECT value FROM settings WHERE name = '\(name)'")
    return rows.bytes(0, 0).map { String(decoding: $0, as: UTF8.self) }
  }
}
