internal import Jobs
package import SQL
internal import SQLite

/// Another program's connection to an SQLite database.
package final class SQLiteFile {
  private let connection: any SQLConnection

  /// Opens the database, or creates it.
  package init(_ path: String) throws {
    var configuration = SQLiteDatabase.Configuration(path: path)
    (configuration.locksFolder, configuration.isDurable) = (false, false)
    connection = try SQLiteDatabase(configuration).connectForSchema()
  }

  /// Runs statements without results.
  package func run(_ script: String) throws {
    try connection.run(script, by: .now + .seconds(60))
  }

  /// Runs a query.
  package func rows(_ query: String) throws -> Rows {
    try connection.execute(SQLStatement(query), by: .now + .seconds(60))
  }

  /// The first column of the first row, as a number.
  package func int(_ query: String) throws -> Int? { try rows(query).int(0, 0).map { Int($0) } }
}
