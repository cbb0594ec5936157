import Foundation
import Jobs
import PostgreSQL
import SQLite
import TestSupport
import Testing

@testable import SQL

/// The job stores to test. Each one must pass the suites in this folder; a new store needs a case
/// and code to open it.
enum StoreAdapter: String, CaseIterable, CustomTestStringConvertible, Sendable {
  case sqlite, postgres
  /// Stores that several instances use.
  case sharedPostgres, sharedSQLite

  /// Stores whose claims consider other instances.
  static let shared: [StoreAdapter] = [.sharedPostgres, .sharedSQLite]

  var testDescription: String { rawValue }
}

/// A temporary folder with an open store. Its clock only moves when it is set.
struct OpenJobs {
  let folder: TemporaryFolder
  let store: StoreUnderTest
  /// The PostgreSQL database, if there is one.
  private var database: TestDatabase?
  private var isShared = false

  init(_ adapter: StoreAdapter, at moment: Timestamp = .at(0)) throws {
    folder = try TemporaryFolder()
    let clock = ManualClock(moment)
    isShared = StoreAdapter.shared.contains(adapter)
    switch adapter {
    case .sqlite, .sharedSQLite:
      store = try folder.openJobs(clock) { [isShared] in $0.isShared = isShared }
    case .postgres, .sharedPostgres:
      let database = try TestDatabase(in: .shared)
      self.database = database
      store = try StoreUnderTest(in: database, clock) { [isShared] in $0.isShared = isShared }
    }
  }

  /// Opens an SQLite store with other settings.
  init(_ change: (inout SQLJobStore.Configuration) -> Void = { _ in }) throws {
    folder = try TemporaryFolder()
    store = try folder.openJobs(ManualClock(.at(0)), change)
  }

  /// Corrupts rows, as a disk, a person or another program may.
  /// - Parameters:
  ///   - column: the column that selects the rows.
  ///   - value: its value in these rows, such as a ``JobID`` or a line's number.
  ///   - change: an SQL assignment; nil to corrupt the record.
  func damage(
    _ table: String, _ column: String, of value: some SQLLiteral, _ change: String? = nil
  ) throws {
    try execute(
      "UPDATE \(table) SET \(change ?? "record = \(literal([0x7B]))") WHERE \(column) = \(literal(value))"
    )
  }

  /// Runs statements as another program would.
  func execute(_ script: String) throws {
    if let database {
      try database.server.run(script, in: database.name)
    } else {
      try file.run(script)
    }
  }

  /// Returns the number of rows in a table.
  func count(of table: String) throws -> Int? {
    let query = "SELECT count(*) FROM \(table)"
    if let database {
      let text = try database.server.run(query, in: database.name)
      return Int(text.trimmingCharacters(in: .whitespacesAndNewlines))
    }
    return try file.int(query)
  }

  /// A configuration for the database, besides that of the open store.
  var configuration: SQLJobStore.Configuration {
    get throws {
      try database.map { SQLJobStore.Configuration(url: $0.url) } ?? folder.configuration
    }
  }

  /// The database file of an SQLite store.
  var file: SQLiteFile { get throws { try SQLiteFile(folder.path + "/jobs.sqlite") } }

  /// A value as the database's SQL spells it.
  func literal(_ value: some SQLLiteral) -> String {
    let hex = value.bytes.map { String(format: "%02x", $0) }.joined()
    return switch value {
    case let number as Int: "\(number)"
    case is JobID where database != nil: "'\(hex)'"
    default: database == nil ? "x'\(hex)'" : "'\\x\(hex)'"
    }
  }

  /// Closes the store and reopens it, as after a crash.
  /// - Parameter last: the open store; `nil` for the first one.
  func reopened(after last: StoreUnderTest? = nil) async throws -> StoreUnderTest {
    await (last ?? store).close()
    if let database {
      try database.loseInstances()
      return try StoreUnderTest(in: database, store.clock) { [isShared] in $0.isShared = isShared }
    }
    if isShared { try file.run("UPDATE instances SET lease_until = 0") }
    return try folder.openJobs(store.clock) { [isShared] in $0.isShared = isShared }
  }
}

extension TemporaryFolder {
  var configuration: SQLJobStore.Configuration {
    get throws {
      var database = SQLiteDatabase.Configuration(path: path + "/jobs.sqlite")
      database.locksFolder = false
      return SQLJobStore.Configuration(try SQLiteDatabase(database))
    }
  }
}

/// A value in a statement of a test.
protocol SQLLiteral {
  var bytes: [UInt8] { get }
}

extension JobID: SQLLiteral {}
extension ImageDigest: SQLLiteral {}
extension Fingerprint: SQLLiteral {}
extension [UInt8]: SQLLiteral { var bytes: [UInt8] { self } }
extension Int: SQLLiteral { var bytes: [UInt8] { [] } }
