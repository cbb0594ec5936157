internal import Foundation
internal import GRDB
internal import Jobs
internal import Records

/// A batch as stored, with its number.
struct BatchRow {
  let number: Int64
  var batch: Batch
  /// Whether all of its jobs had finished when it was read.
  let wasOver: Bool

  static let columns = "number, record"

  private init(_ row: Row) throws {
    number = row[0]
    do {
      batch = try RecordDecoder.decode(Batch.self, from: Array(row[1] as Data))
      wasOver = batch.finishedAt != nil
    } catch {
      throw StoreError.unreadable(detail: "the batch of row \(number) can't be read: \(error)")
    }
  }

  static func fetch(_ id: BatchID, _ db: Database) throws -> BatchRow? {
    let statement = try db.cachedStatement(sql: "SELECT \(columns) FROM batches WHERE id = ?")
    return try Row.fetchOne(statement, arguments: [id.data]).map(BatchRow.init)
  }

  static func fetch(number: Int64, _ db: Database) throws -> BatchRow? {
    let statement = try db.cachedStatement(sql: "SELECT \(columns) FROM batches WHERE number = ?")
    return try Row.fetchOne(statement, arguments: [number]).map(BatchRow.init)
  }

  static func isPurged(_ number: Int64, _ db: Database) throws -> Bool {
    let statement = try db.cachedStatement(
      sql: "SELECT 1 FROM batches WHERE number = ? AND stage = \(BatchStage.purged.rawValue)")
    return try Int.fetchOne(statement, arguments: [number]) != nil
  }

  /// Returns the matching batches and skips unreadable ones, so that they do not block the others.
  static func fetchReadable(
    _ condition: String, _ arguments: StatementArguments, _ db: Database
  ) throws -> [BatchRow] {
    try fetchAll(condition, arguments, db, unreadable: { _ in })
  }

  /// - Parameter unreadable: called for each batch whose record can't be decoded.
  static func fetchAll(
    _ condition: String, _ arguments: StatementArguments, _ db: Database,
    unreadable: (StoreError) throws -> Void = { throw $0 }
  ) throws -> [BatchRow] {
    let statement = try db.cachedStatement(sql: "SELECT \(columns) FROM batches WHERE \(condition)")
    return try Row.fetchAll(statement, arguments: arguments).compactMap { row in
      do { return try BatchRow(row) } catch let error as StoreError {
        try unreadable(error)
        return nil
      }
    }
  }
}

extension Batch {
  var record: Data { get throws { Data(try RecordEncoder.encode(self)) } }
}
