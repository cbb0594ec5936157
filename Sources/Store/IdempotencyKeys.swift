internal import Foundation
internal import GRDB
internal import Jobs

/// The clients' keys, each with what it stands for. A row is written once and stays as it is until its time has come, so
/// that a repetition is answered by looking only.
enum IdempotencyKeys {
  /// A key that came before.
  enum Known: Sendable {
    /// With the same request, which had these jobs.
    case repeated([JobID])
    /// With another one.
    case reused
  }

  /// What is known of a key; nil for a new one.
  static func find(_ key: IdempotencyKey, _ db: Database) throws -> Known? {
    let statement = try db.cachedStatement(
      sql: "SELECT fingerprint, jobs FROM keys WHERE owner = ? AND key = ?")
    let row = try Row.fetchOne(statement, arguments: [key.owner.data, Data(key.key.utf8)])
    guard let row else { return nil }
    guard row[0] as Data == key.fingerprint.data else { return .reused }
    return .repeated(ids(row[1]))
  }

  /// What a submission under a known key is answered with: the jobs as they are now, in the order given.
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
