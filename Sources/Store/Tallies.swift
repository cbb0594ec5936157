internal import GRDB
internal import Jobs

/// What is counted rather than looked up. It is a value: an operation that fails gets the earlier one back.
struct Tallies: Sendable {
  private(set) var jobs = [Int](repeating: 0, count: Phase.allCases.count)
  /// Images that are not leaving.
  var images = 0
  /// Their bytes.
  var imageBytes = 0
  /// The bytes of those among them that can't give way.
  var pinnedBytes = 0

  /// Entries of the cache.
  var cacheEntries = 0
  /// Their images' bytes, equal images counted once an entry.
  var cacheBytes = 0

  /// Which jobs are next once their origins have room.
  var parked: ParkedHeads
  /// When the next job that waits for its time is due.
  var nextDue = NextDue()
  /// Jobs handed over in the queue's order, since the start.
  var handedOver = 0

  /// Places at the end of the queue: each is behind all earlier ones.
  var ranks = Numbering(name: "rank")
  /// Places ahead of the queue, counted downwards.
  var ranksAhead = Numbering(name: "rank ahead")
  /// Claims' numbers.
  var claims = Numbering(name: "claim")

  subscript(phase: Phase) -> Int {
    get { jobs[phase.code] }
    set { jobs[phase.code] = newValue }
  }

  var counts: StoreCounts {
    let byPhase = Phase.allCases.map { ($0, self[$0]) }
    return StoreCounts(
      jobs: Dictionary(uniqueKeysWithValues: byPhase), images: images, imageBytes: imageBytes)
  }

  var cacheCounts: (entries: Int, bytes: Int) { (cacheEntries, cacheBytes) }

  /// Notes that a job's row was written or deleted; nil where there is none before or after.
  mutating func move(from old: JobRow?, to new: JobRow?) {
    if let old {
      self[old.phase] -= 1
      parked.remove(old)
      nextDue.remove(old)
    }
    if let new {
      self[new.phase] += 1
      parked.add(new)
      nextDue.add(new)
    }
  }

  /// Counts what the database holds.
  init(counting db: Database) throws {
    parked = try ParkedHeads(db)
    let phases = try Row.fetchCursor(db, sql: "SELECT phase, count(*) FROM jobs GROUP BY phase")
    while let row = try phases.next() {
      guard let phase = Phase(code: row[0]) else { continue }
      self[phase] = row[1]
    }
    let sums = try Row.fetchOne(
      db,
      sql: """
        SELECT count(*), ifnull(sum(bytes), 0), ifnull(sum(iif(hard > 0, bytes, 0)), 0)
        FROM images WHERE leaving = 0
        """)
    if let sums { (images, imageBytes, pinnedBytes) = (sums[0], sums[1], sums[2]) }
    let cached = try Row.fetchOne(db, sql: "SELECT count(*), ifnull(sum(bytes), 0) FROM cache")
    if let cached { (cacheEntries, cacheBytes) = (cached[0], cached[1]) }
    for sequence in [\Tallies.ranks, \.ranksAhead, \.claims] {
      try self[keyPath: sequence].load(db)
    }
  }
}

/// Numbers that are never given twice, also after a crash: they are set aside in the database by the thousands, so
/// that taking one seldom writes.
struct Numbering: Sendable {
  let name: String
  private var last: Int64 = 0
  private var bound: Int64 = 0
  private static let block: Int64 = 10_000

  init(name: String) { self.name = name }

  mutating func load(_ db: Database) throws {
    let statement = try db.cachedStatement(sql: "SELECT bound FROM sequences WHERE name = ?")
    bound = try Int64.fetchOne(statement, arguments: [name]) ?? 0
    last = bound
  }

  mutating func next(_ db: Database) throws -> Int64 {
    if last == bound {
      bound += Self.block
      try db.cachedStatement(
        sql: """
          INSERT INTO sequences (name, bound) VALUES (?, ?)
          ON CONFLICT (name) DO UPDATE SET bound = excluded.bound
          """
      ).execute(arguments: [name, bound])
    }
    last += 1
    return last
  }
}
