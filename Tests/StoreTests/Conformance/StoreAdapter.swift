import Foundation
import GRDB
import Jobs
import PostgreSQL
import TestSupport
import Testing

@testable import Store

/// What keeps jobs and the cache's index: each passes this folder's suites. A new adapter is a case here, and what it
/// takes to open it.
enum StoreAdapter: String, CaseIterable, CustomTestStringConvertible, Sendable {
  case sqlite, postgres, memory
  /// As many instances use it.
  case sharedPostgres, sharedMemory

  /// Those that mind what other instances are at.
  static let shared: [StoreAdapter] = [.sharedPostgres, .sharedMemory]

  var testDescription: String { rawValue }
}

/// A place with an open store in it, whose clock stands still unless told otherwise.
struct OpenJobs {
  let folder: TemporaryFolder
  let store: StoreUnderTest
  /// Where PostgreSQL's is.
  private var database: TestDatabase?
  private var isShared = false

  init(_ adapter: StoreAdapter, at moment: Timestamp = .at(0)) throws {
    folder = try TemporaryFolder()
    let clock = ManualClock(moment)
    switch adapter {
    case .sqlite: store = try folder.openJobs(clock)
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

  /// In SQLite, set up otherwise than usual.
  init(_ change: (inout SQLiteJobStore.Configuration) -> Void = { _ in }) throws {
    folder = try TemporaryFolder()
    store = try folder.openJobs(change)
  }

  /// Spoils a row, as a disk, a person or another program may.
  /// - Parameter change: nil: of its record.
  func damage(
    _ table: String, _ column: String, of id: JobID, _ change: String? = nil
  ) async throws {
    let bytes = id.data.map { String(format: "%02x", $0) }.joined()
    try damage(table, "\(column) = \(database == nil ? "x" : "")'\(bytes)'", change)
  }

  /// Spoils the record of a line.
  func damage(_ table: String, _ column: String, of line: Int) async throws {
    try damage(table, "\(column) = \(line)", nil)
  }

  /// The rows of a table; nil where there are no tables.
  func count(of table: String) throws -> Int? {
    if let database {
      let text = try database.server.run("SELECT count(*) FROM \(table)", in: database.name)
      return Int(text.trimmingCharacters(in: .whitespacesAndNewlines))
    }
    guard store.base is SQLiteJobStore else { return nil }
    return try store.onWriter { try Int.fetchOne($0, sql: "SELECT count(*) FROM \(table)") }
  }

  private func damage(_ table: String, _ row: String, _ change: String?) throws {
    if let database {
      try database.server.run(
        "UPDATE \(table) SET \(change ?? "record = '\\x7b'") WHERE \(row)", in: database.name)
    } else {
      try store.onWriter {
        try $0.execute(sql: "UPDATE \(table) SET \(change ?? "record = x'7B'") WHERE \(row)")
      }
    }
  }

  /// The same place after the service stopped, however it did, and came again.
  /// - Parameter last: what is open there; nil: what was first.
  func reopened(after last: StoreUnderTest? = nil) async throws -> StoreUnderTest {
    await (last ?? store).close()
    if let database {
      try database.loseInstances()
      return try StoreUnderTest(in: database, store.clock) { [isShared] in $0.isShared = isShared }
    }
    guard let memory = store.base as? MemoryJobStore else {
      return try folder.openJobs(store.clock)
    }
    await memory.loseInstances()
    return StoreUnderTest(memory, store.clock)
  }
}
