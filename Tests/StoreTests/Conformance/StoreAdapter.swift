import Foundation
import GRDB
import Jobs
import PostgreSQL
import SQLite
import TestSupport
import Testing

@testable import SQL
@testable import Store

/// The job stores to test. Each one must pass the suites in this folder; a new store needs a case
/// and code to open it.
enum StoreAdapter: String, CaseIterable, CustomTestStringConvertible, Sendable {
  case sqlite, sql, postgres, memory
  /// Stores that several instances use.
  case sharedPostgres, sharedMemory

  /// Stores whose claims consider other instances.
  static let shared: [StoreAdapter] = [.sharedPostgres, .sharedMemory]

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
    switch adapter {
    case .sqlite: store = try folder.openJobs(clock)
    case .sql: store = try folder.openSQL(clock)
    case .postgres, .sharedPostgres:
      let database = try TestDatabase(in: .shared)
      self.database = database
      isShared = adapter == .sharedPostgres
      store = try StoreUnderTest(in: database, clock) { [isShared] in $0.isShared = isShared }
    case .memory: store = StoreUnderTest(MemoryJobStore { clock.now }, clock)
    case .sharedMemory:
      store = StoreUnderTest(MemoryJobStore(isExclusive: false) { clock.now }, clock)
    }
  }

  /// Opens an SQLite store with other settings.
  init(_ change: (inout SQLiteJobStore.Configuration) -> Void = { _ in }) throws {
    folder = try TemporaryFolder()
    store = try folder.openJobs(change)
  }

  /// Corrupts a row, as a disk, a person or another program may.
  /// - Parameter change: an SQL assignment; `nil` to corrupt the record.
  func damage(
    _ table: String, _ column: String, of id: JobID, _ change: String? = nil
  ) async throws {
    let bytes = id.data.map { String(format: "%02x", $0) }.joined()
    try damage(table, "\(column) = \(database == nil ? "x" : "")'\(bytes)'", change)
  }

  /// Corrupts the record of a line.
  func damage(_ table: String, _ column: String, of line: Int) async throws {
    try damage(table, "\(column) = \(line)", nil)
  }

  /// Returns the number of rows in a table; `nil` for a store without tables.
  func count(of table: String) throws -> Int? {
    if let database {
      let text = try database.server.run("SELECT count(*) FROM \(table)", in: database.name)
      return Int(text.trimmingCharacters(in: .whitespacesAndNewlines))
    }
    if store.base is SQLJobStore {
      return try onDatabase { Int(try $0.execute("SELECT count(*) FROM \(table)").int(0, 0) ?? 0) }
    }
    guard store.base is SQLiteJobStore else { return nil }
    return try store.onWriter { try Int.fetchOne($0, sql: "SELECT count(*) FROM \(table)") }
  }

  private func damage(_ table: String, _ row: String, _ change: String?) throws {
    if let database {
      try database.server.run(
        "UPDATE \(table) SET \(change ?? "record = '\\x7b'") WHERE \(row)", in: database.name)
    } else if store.base is SQLJobStore {
      try onDatabase {
        try $0.run("UPDATE \(table) SET \(change ?? "record = x'7B'") WHERE \(row)")
      }
    } else {
      try store.onWriter {
        try $0.execute(sql: "UPDATE \(table) SET \(change ?? "record = x'7B'") WHERE \(row)")
      }
    }
  }

  /// Runs a body on a connection to the SQLite database.
  private func onDatabase<Value>(_ body: (Transaction) throws -> Value) throws -> Value {
    var configuration = SQLiteDatabase.Configuration(path: folder.path + "/jobs.sqlite")
    configuration.locksFolder = false
    let database = try SQLiteDatabase(configuration)
    let session = Session(
      Session.Settings(SQLJobStore.Configuration(database)), over: try database.connectForSchema())
    return try session.read(body)
  }

  /// Closes the store and reopens it, as after a crash.
  /// - Parameter last: the open store; `nil` for the first one.
  func reopened(after last: StoreUnderTest? = nil) async throws -> StoreUnderTest {
    await (last ?? store).close()
    if let database {
      try database.loseInstances()
      return try StoreUnderTest(in: database, store.clock) { [isShared] in $0.isShared = isShared }
    }
    if store.base is SQLJobStore { return try folder.openSQL(store.clock) }
    guard let memory = store.base as? MemoryJobStore else {
      return try folder.openJobs(store.clock)
    }
    await memory.loseInstances()
    return StoreUnderTest(memory, store.clock)
  }
}

extension TemporaryFolder {
  /// Opens a store in an SQLite database. A long timeout makes each transaction complete its optional work, as in the
  /// other stores, even on a busy machine.
  func openSQL(
    _ clock: ManualClock, _ change: (inout SQLJobStore.Configuration) -> Void = { _ in }
  ) throws -> StoreUnderTest {
    var database = SQLiteDatabase.Configuration(path: path + "/jobs.sqlite")
    database.clock = { clock.now }
    var configuration = SQLJobStore.Configuration(try SQLiteDatabase(database))
    configuration.timeout = .seconds(600)
    change(&configuration)
    return StoreUnderTest(try SQLJobStore(configuration), clock)
  }
}
