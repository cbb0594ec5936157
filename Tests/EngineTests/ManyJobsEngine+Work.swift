import GRDB

@testable import Engine
@testable import Store

extension ManyJobsEngine {
  /// Counts of the store.
  struct Work {
    var transactions: Int
    /// Rows written or deleted.
    var changes: Int
  }

  func work() async throws -> Work {
    let changes = try await store.writer.perform { $0.db.totalChangesCount }
    return Work(transactions: store.writer.committed.transactions, changes: changes)
  }
}
