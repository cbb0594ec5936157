internal import Foundation
internal import GRDB
internal import Jobs
internal import Logging

/// Lists jobs, newest first. The time grows with the page, not with the table.
///
/// The index contains the jobs of one owner in one phase sorted by id, and the table of tags the
/// jobs of one tag. A query over several owners or phases reads one page of each and merges them.
struct JobListing {
  private(set) var query: JobQuery

  func page(_ db: Database) throws -> JobPage {
    var page = JobPage(jobs: [], hasMore: false)
    guard query.limit > 0 else { return page }
    var listing = self
    var (looked, bytes) = (0, 0)
    while true {
      let (ids, rest) = try listing.ids(db)
      let before = looked
      for id in ids.prefix(query.limit)
      where bytes < query.maxBytes && page.jobs.count < query.limit {
        looked += 1
        page.last = JobID(data: id)
        let (job, size) = try job(id, db)
        // Count the bytes of every decoded record, even if the job is filtered out.
        bytes += size
        if let job, query.selects(job) { page.jobs.append(job) }
      }
      page.hasMore = ids.count > looked - before
      if let rest, !page.hasMore {
        (page.hasMore, page.last) = (true, rest)
        break
      }
      // A client continues with `page.last`. A page without any job is of little use, but each
      // further query costs time.
      let isEnough = !page.jobs.isEmpty && !query.isSelective || page.jobs.count == query.limit
      guard page.hasMore, !isEnough, bytes < query.maxBytes, looked < Self.maxLooks else { break }
      listing = JobListing(query: query)
      listing.query.before = page.last
    }
    if !page.hasMore || page.last == page.jobs.last?.id { page.last = nil }
    return page
  }

  /// The maximum number of jobs read for a page if the filter has no index.
  private static let maxLooks = 2_000

  /// Returns the job, or `nil` if it is unreadable or its batch is purged, and its record's size in
  /// bytes.
  private func job(_ id: Data, _ db: Database) throws -> (Job?, bytes: Int) {
    var bytes = 0
    do {
      guard let row = try JobRow.fetch(id, db) else { return (nil, 0) }
      bytes = row.fullBytes
      if row.batch != 0, try BatchRow.isPurged(row.batch, db) { return (nil, bytes) }
      return (try row.job(), bytes)
    } catch let error as StoreError {
      Logger(label: "store").error("skipping unreadable job", metadata: ["error": "\(error)"])
      return (nil, bytes)
    }
  }

  /// All owners that have jobs. There are few, because each is a token of the configuration.
  static func owners(_ db: Database) throws -> [Data] {
    let next = try db.cachedStatement(
      sql: "SELECT owner FROM jobs WHERE owner > ? ORDER BY owner LIMIT 1")
    var owners: [Data] = []
    // The empty owner needs its own query, because it is not greater than the empty bytes.
    let anonymous = try db.cachedStatement(sql: "SELECT owner FROM jobs WHERE owner = ? LIMIT 1")
    if let first = try Data.fetchOne(anonymous, arguments: [Data()]) { owners.append(first) }
    while let owner = try Data.fetchOne(next, arguments: [owners.last ?? Data()]) {
      owners.append(owner)
    }
    return owners
  }

  /// The claims that an instance holds.
  static func claims(of instance: Instance, _ db: Database) throws -> Set<Claim> {
    let statement = try db.cachedStatement(
      sql: """
        SELECT id, claim FROM jobs
        WHERE owner = ? AND phase = 1 AND claim BETWEEN ?2 << 32 AND (?2 << 32) + 0xFFFFFFFF
        """)
    var claims: Set<Claim> = []
    for owner in try owners(db) {
      let rows = try Row.fetchCursor(statement, arguments: [owner, instance.number])
      while let row = try rows.next() {
        guard let job = JobID(data: row[0]) else { continue }
        claims.insert(Claim(job: job, instance: instance, number: row[1]))
      }
    }
    return claims
  }

  /// Returns up to one id more than the page's limit. `rest` is the last id that was read if
  /// further ones were not.
  private func ids(_ db: Database) throws -> ([Data], rest: JobID?) {
    if let batch = query.batch { return try ids(of: batch, db) }
    return (try indexedIDs(db), nil)
  }

  private func indexedIDs(_ db: Database) throws -> [Data] {
    if query.owner == nil, query.tag == nil, query.phases.isEmpty {
      return try ids(db, "SELECT id FROM jobs WHERE", [])
    }
    let owners = try query.owner.map { [$0.data] } ?? Self.owners(db)
    let phases = query.phases.isEmpty ? Set(Phase.allCases) : query.phases
    var merged: [Data] = []
    for owner in owners {
      for phase in phases {
        if let tag = query.tag {
          merged += try ids(
            db, "SELECT id FROM tags WHERE owner = ? AND tag = ? AND phase = ? AND",
            [owner, Data(tag.utf8), phase.code])
        } else {
          merged += try ids(
            db, "SELECT id FROM jobs WHERE owner = ? AND phase = ? AND", [owner, phase.code])
        }
      }
    }
    merged.sort { $1.lexicographicallyPrecedes($0) }
    return Array(merged.prefix(query.limit + 1))
  }

  private func ids(
    _ db: Database, _ start: String, _ arguments: [(any DatabaseValueConvertible)?]
  ) throws -> [Data] {
    let statement = try db.cachedStatement(
      sql: """
        \(start) id < ? AND id >= ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY id DESC LIMIT ?
        """)
    // 17 bytes of 0xFF are greater than every id.
    let before = query.end?.data ?? Data(repeating: 0xFF, count: 17)
    let from = query.start?.data ?? Data()
    return try Data.fetchAll(
      statement,
      arguments: StatementArguments(
        arguments + [before, from, query.now.milliseconds, query.limit + 1]))
  }

  /// Searches the index of the batch's lines, where later lines have greater ids. All other
  /// conditions are checked row by row.
  private func ids(of batch: BatchID, _ db: Database) throws -> ([Data], rest: JobID?) {
    guard let row = try BatchRow.fetch(batch, db), !row.batch.isPurged,
      query.owner == nil || query.owner == row.batch.owner
    else { return ([], nil) }
    var condition = "TRUE"
    if let code = query.code { condition += " AND code IS '\(code.rawValue)'" }
    if !query.phases.isEmpty {
      condition +=
        " AND phase IN (\(query.phases.map { "\($0.code)" }.sorted().joined(separator: ", ")))"
    }
    let statement = try db.cachedStatement(
      sql: """
        SELECT id, \(condition) FROM jobs WHERE batch = ? AND line < ?
        ORDER BY line DESC LIMIT \(JobQuery.maxLines)
        """)
    let end = try query.end.map { try line(of: $0, in: row, db) } ?? Int.max
    let rows = try Row.fetchCursor(statement, arguments: [row.number, end])
    let start = query.start?.data ?? Data()
    var (ids, looked): ([Data], Int) = ([], 0)
    while ids.count <= query.limit, let row = try rows.next() {
      let id: Data = row[0]
      guard !id.lexicographicallyPrecedes(start) else { break }
      looked += 1
      if row[1] { ids.append(id) }
      if looked == JobQuery.maxLines, ids.count <= query.limit { return (ids, JobID(data: id)) }
    }
    return (ids, nil)
  }

  /// Returns the first line whose id is not less than `id`. No job needs to have this id.
  private func line(of id: JobID, in row: BatchRow, _ db: Database) throws -> Int {
    let first = try db.cachedStatement(
      sql: """
        SELECT line, id FROM jobs WHERE batch = ? AND line >= ? AND line < ? ORDER BY line LIMIT 1
        """)
    return try JobQuery.line(of: id, upTo: row.batch.received + 1) { low, high in
      try Row.fetchOne(first, arguments: [row.number, low, high]).flatMap { row in
        JobID(data: row[1]).map { (row[0], $0) }
      }
    }
  }
}
