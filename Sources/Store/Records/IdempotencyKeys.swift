internal import Foundation
internal import GRDB
internal import Jobs

/// Idempotency keys. A row is written once and never changed, so a repeated request is answered by
/// reads only. The row is deleted when it expires.
enum IdempotencyKeys {
  /// The result of a search for a key.
  enum Known: Sendable {
    /// The key was used for the same request, which created these jobs.
    case repeated([JobID])
    /// The key was used for another request.
    case reused
  }

  /// Searches a key; returns `nil` if it is new.
  static func find(_ key: IdempotencyKey, _ db: Database) throws -> Known? {
    let statement = try db.cachedStatement(
      sql: "SELECT fingerprint, jobs FROM keys WHERE owner = ? AND key = ?")
    let row = try Row.fetchOne(statement, arguments: [key.owner.data, Data(key.key.utf8)])
    guard let row else { return nil }
    guard row[0] as Data == key.fingerprint.data else { return .reused }
    return .repeated(ids(row[1]))
  }

  /// Returns the outcome of a submission under a known key. A repeated one gets the jobs in their
  /// current state, in the original order.
  static func answer(to known: Known, _ db: Database) throws -> SubmitOutcome {
    switch known {
    case .reused: .keyReused
    case .repeated(let ids):
      .repeated(
        try ids.map { id in try JobRow.fetch(id.data, db).map { .kept(try $0.job()) } ?? .gone(id) }
      )
    }
  }

  static func data(of ids: [JobID]) -> Data {
    var data = Data(capacity: 16 * ids.count)
    for id in ids { data.append(id.data) }
    return data
  }

  static func ids(_ data: Data) -> [JobID] {
    stride(from: data.startIndex, to: data.endIndex, by: 16).compactMap { start in
      JobID(data: Data(data[start...].prefix(16)))
    }
  }
}
