import GRDB
import Jobs

@testable import Store

/// Access to the SQLite store, for tests that only use SQLite.
extension StoreUnderTest {
  var writer: GroupCommit { sqlite.writer }

  func onWriter<Value>(_ body: (Database) throws -> Value) throws -> Value {
    try sqlite.onWriter(body)
  }

  func work() async throws -> (steps: Int, changes: Int) { try await sqlite.work() }

  func read<Value: Sendable>(
    _ body: @escaping @Sendable (Database) throws -> Value
  ) async throws -> Value {
    try await sqlite.read(body)
  }
}
