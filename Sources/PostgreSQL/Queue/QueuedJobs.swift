internal import Jobs

/// The queues with which a claim starts if it can't read all of them; `nil` means the first queue.
struct QueueCursor: Sendable {
  /// The maximum number of queues of one priority that a claim reads. If there are more, later
  /// claims continue with the others.
  static let maxQueues = 64

  /// The last queue that was read, for the ready jobs of each priority.
  fileprivate var ready = [JobQueueName?](repeating: nil, count: Priority.allCases.count)
  /// The last queue that was read, for parked jobs of any priority.
  fileprivate var parked: JobQueueName?

  var isAtStart: Bool { parked == nil && ready.allSatisfy { $0 == nil } }

  /// Sets a random start for parked jobs if an origin has jobs in more queues than a claim reads.
  mutating func update(with jobs: [QueuedJob]) {
    struct Stand: Hashable { let origin: String?, priority: Int }
    var lanes: [Stand: Set<JobQueueName>] = [:]
    for job in jobs {
      lanes[Stand(origin: job.origin, priority: job.place.priority), default: []]
        .insert(job.place.queue)
    }
    parked = lanes.values.first { $0.count >= Self.maxQueues }?.randomElement()
  }
}

/// The ready jobs of one position that were read.
struct QueuePage: Sendable {
  let place: QueuePosition
  /// The first job, which may not be read yet.
  let head: (id: JobID, rank: Int64)
  /// The jobs in order.
  var jobs: [QueuedJob] = []
  /// Whether more jobs may follow.
  var isCut = true

  /// Whether no job was read yet.
  var isUnread: Bool { isCut && jobs.isEmpty }
}

/// The queues with ready jobs, and the number of loading jobs of each queue.
struct ClaimQueues {
  /// The queues with ready jobs; none of these jobs was read yet.
  var pages: [QueuePage] = []
  var jobs: ClaimableJobs
  /// The start of the next claim.
  var next = QueueCursor()

  init(after served: ServedQueues) { jobs = ClaimableJobs(after: served) }

  /// Returns the number of ready jobs to read of each page, so that few rows are read in vain.
  /// - Parameter needed: Pages to read even if the prediction does not include them.
  func wanted(
    _ count: Int, of pages: [QueuePage], by chooser: ClaimChooser, needed: Set<QueuePosition>
  ) -> [Int] {
    var available: [QueuePosition: Int?] = [:]
    for page in pages where page.isCut || !page.jobs.isEmpty {
      available[page.place] = .some(page.isCut ? nil : page.jobs.count)
    }
    let wanted = chooser.prediction(of: count, from: jobs, available: available)
    return pages.map { page in
      max(wanted[page.place] ?? 0, page.isUnread && needed.contains(page.place) ? 1 : 0)
    }
  }
}

/// The queries of a claim.
extension Transaction {
  /// The maximum count of an owner's loading jobs. Owners with more are treated alike.
  private static let mostLoading = 128
  /// The maximum number of queries for further jobs if fewer were found than expected.
  private static let mostRounds = 4

  /// Finds the queues that have ready jobs, with one index search per queue, however many jobs are
  /// queued. Does not lock jobs. An owner without free capacity costs one search.
  func claimQueues(
    from cursor: QueueCursor, of owners: OwnerCapacity, after served: ServedQueues
  ) throws -> ClaimQueues {
    let full = owners.full
    func next(_ priority: String, after lane: String) -> String {
      """
      CROSS JOIN LATERAL (SELECT q.owner, coalesce(q.batch, 0) AS batch, q.id, q.rank FROM queue q
        WHERE q.state = 0 AND q.priority = \(priority) AND \(Self.isBehind("\(lane).owner", "\(lane).batch", full: "$3"))
        ORDER BY q.owner, coalesce(q.batch, 0), q.rank LIMIT 1) h
      """
    }
    let rows = try execute(
      """
      WITH RECURSIVE lanes (priority, owner, batch, id, rank, n) AS (
        SELECT s.level - 1, h.owner, h.batch, h.id, h.rank, 1
        FROM unnest($1, $2) WITH ORDINALITY AS s (owner, batch, level) \(next("s.level - 1", after: "s"))
        UNION ALL SELECT l.priority, h.owner, h.batch, h.id, h.rank, l.n + 1 FROM lanes l
        \(next("l.priority", after: "l")) WHERE l.n < \(QueueCursor.maxQueues))
      SELECT l.priority, l.owner, l.batch, l.id, l.n,
        EXISTS (SELECT FROM batches b WHERE b.number = l.batch AND b.stage >= 4), l.rank
        FROM lanes l
      UNION ALL (WITH RECURSIVE owners (owner) AS (
          (SELECT owner FROM queue WHERE state = 4 ORDER BY owner LIMIT 1)
          UNION ALL SELECT (SELECT q.owner FROM queue q WHERE q.state = 4 AND q.owner > o.owner
            ORDER BY q.owner LIMIT 1) FROM owners o WHERE o.owner IS NOT NULL)
        SELECT NULL::bigint, o.owner, coalesce(q.batch, 0), NULL::uuid, count(*), false, NULL::bigint
        FROM owners o
        CROSS JOIN LATERAL (SELECT q.batch FROM queue q
          WHERE q.state = 4 AND q.owner = o.owner LIMIT \(Self.mostLoading)) q GROUP BY 2, 3)
      """,
      [
        .byteStrings(cursor.ready.map { $0?.owner.bytes ?? [] }),
        .ints(cursor.ready.map { $0?.batch ?? -1 }), .byteStrings(full.map(\.bytes)),
      ])
    var lanes = ClaimQueues(after: served)
    for row in rows.all {
      guard let owner = rows.bytes(row, 1), let batch = rows.int(row, 2),
        let number = rows.int(row, 4)
      else { continue }
      let lane = JobQueueName(owner: Owner(bytes: owner), batch: batch)
      guard let priority = rows.int(row, 0).map({ Int($0) }), let id = rows.id(row, 3),
        let rank = rows.int(row, 6)
      else {
        lanes.jobs.ready.addLoading(Int(number), of: lane)
        continue
      }
      if number == QueueCursor.maxQueues { lanes.next.ready[priority] = lane }
      guard !rows.bool(row, 5), !full.contains(lane.owner) else { continue }
      let place = QueuePosition(priority: priority, queue: lane)
      lanes.pages.append(QueuePage(place: place, head: (id, rank)))
      lanes.jobs.ready.addReady(1, at: place)
    }
    return lanes
  }

  /// Reads and locks the ready jobs that are probably next. In the first round also reads the
  /// first parked jobs of each origin with free capacity, and some jobs that wait for a load of
  /// this instance.
  func queuedJobs(
    of queues: ClaimQueues, page: Int, _ request: ClaimRequest, by chooser: ClaimChooser
  ) throws -> (pages: [QueuePage], aside: [QueuedJob]) {
    var (pages, aside): ([QueuePage], [QueuedJob]) = (queues.pages, [])
    for round in 0..<Self.mostRounds {
      let wanted = queues.wanted(page, of: pages, by: chooser, needed: request.needed)
      let short = pages.indices.filter { pages[$0].isCut && wanted[$0] > pages[$0].jobs.count }
      if round > 0, short.isEmpty { break }
      let counts = short.map { wanted[$0] - pages[$0].jobs.count }
      let jobs = try self.queuedJobs(
        zip(short, counts).map { (pages[$0], $1) }, page: page, request, withAside: round == 0)
      let byPlace = Dictionary(grouping: jobs.filter { !$0.isParked }, by: \.place)
      for (index, count) in zip(short, counts) {
        let more = byPlace[pages[index].place] ?? []
        pages[index].jobs += more.sorted { $0.rank < $1.rank }
        pages[index].isCut = more.count >= count
      }
      if round == 0 { aside = jobs.filter(\.isParked) }
      if pages.reduce(0, { $0 + $1.jobs.count }) >= request.count { break }
    }
    return (pages, aside)
  }

  private func queuedJobs(
    _ wanted: [(page: QueuePage, count: Int)], page: Int, _ request: ClaimRequest, withAside: Bool
  ) throws -> [QueuedJob] {
    let ready = """
      SELECT q.* FROM unnest($1, $2, $3, $4, $5) AS l (priority, owner, batch, rank, n)
      CROSS JOIN LATERAL (SELECT \(QueuedJob.columns) FROM queue q
        WHERE q.state = 0 AND q.priority = l.priority AND q.owner = l.owner AND coalesce(q.batch, 0) = l.batch
          AND q.rank > l.rank AND NOT EXISTS (SELECT FROM batches b WHERE b.number = l.batch AND b.stage >= 4)
        ORDER BY q.rank LIMIT l.n FOR UPDATE SKIP LOCKED) q
      """
    let places: [SQLValue] = [
      .ints(wanted.map { Int64($0.page.place.priority) }),
      .byteStrings(wanted.map(\.page.place.queue.owner.bytes)),
      .ints(wanted.map(\.page.place.queue.batch)),
      .ints(wanted.map { $0.page.jobs.last?.rank ?? .min }), .ints(wanted.map { Int64($0.count) }),
    ]
    guard withAside else {
      let rows = try execute(ready, places)
      return rows.all.compactMap { QueuedJob(rows, $0) }
    }
    let (room, after) = (request.room, request.cursor.parked)
    let (own, instance): (String, [SQLValue]) =
      request.isShared ? (Self.own, [.int(request.instance.number)]) : ("", [])
    let rooms: [SQLValue] = [
      .int(Int64(page)), .int(Int64(request.count)), .int(Int64(clamping: room.usual)),
      .byteStrings(room.exceptions.keys.map { Array($0.utf8) }),
      .ints(room.exceptions.values.map { Int64(clamping: $0) }),
      .bytes(after?.owner.bytes ?? []), .int(after?.batch ?? -1),
      .byteStrings(request.owners.full.map(\.bytes)),
    ]
    let rows = try execute(Self.aside + ready + Self.parked + own, places + rooms + instance)
    return rows.all.compactMap { QueuedJob(rows, $0) }
  }

  /// Condition: the job's queue comes after the given one. If the owner is full, all of its queues
  /// are skipped.
  private static func isBehind(_ owner: String, _ batch: String, full: String) -> String {
    let last = "CASE WHEN \(owner) = ANY (\(full)) THEN \(Int64.max) ELSE \(batch) END"
    return "(q.owner, coalesce(q.batch, 0)) > (\(owner), \(last))"
  }

  private static let own = """

    UNION ALL SELECT q.* FROM (SELECT \(QueuedJob.columns) FROM queue l JOIN queue q ON q.state = 3 AND q.request = l.request
      WHERE EXISTS (SELECT FROM queue WHERE state = 3) AND l.state = 4 AND l.leads AND l.instance = $14
        AND q.owner <> ALL ($13) AND \(Transaction.isNotInStoppedBatch)
      ORDER BY q.priority DESC, q.rank LIMIT $6 FOR UPDATE OF q SKIP LOCKED) q
    """

  /// The origins with parked jobs and free capacity, and the queues of these jobs.
  private static let aside = """
    WITH RECURSIVE origins (origin) AS (
      (SELECT origin FROM queue WHERE state = 2 ORDER BY origin LIMIT 1)
      UNION ALL SELECT (SELECT q.origin FROM queue q WHERE q.state = 2 AND q.origin > o.origin
        ORDER BY q.origin LIMIT 1) FROM origins o WHERE o.origin IS NOT NULL
    ), open (origin, room) AS (
      SELECT o.origin, least(coalesce(x.room, $8), $7) FROM origins o
        LEFT JOIN unnest($9, $10) AS x (origin, room) ON x.origin = o.origin
      WHERE o.origin IS NOT NULL AND coalesce(x.room, $8) > 0
    ), lanes (origin, room, priority, owner, batch, n) AS (
      SELECT o.origin, o.room, level, h.owner, h.batch, 1
      FROM open o CROSS JOIN generate_series(0, \(Priority.allCases.count - 1)) AS level
      CROSS JOIN LATERAL (SELECT q.owner, coalesce(q.batch, 0) AS batch FROM queue q
        WHERE q.state = 2 AND q.origin = o.origin AND q.priority = level AND \(isBehind("$11", "$12", full: "$13"))
        ORDER BY q.owner, coalesce(q.batch, 0) LIMIT 1) h
      UNION ALL SELECT l.origin, l.room, l.priority, h.owner, h.batch, l.n + 1 FROM lanes l
      CROSS JOIN LATERAL (SELECT q.owner, coalesce(q.batch, 0) AS batch FROM queue q
        WHERE q.state = 2 AND q.origin = l.origin AND q.priority = l.priority
          AND \(isBehind("l.owner", "l.batch", full: "$13"))
        ORDER BY q.owner, coalesce(q.batch, 0) LIMIT 1) h
      WHERE l.n < \(QueueCursor.maxQueues)
    )

    """

  private static let parked = """

    UNION ALL SELECT q.* FROM lanes l CROSS JOIN LATERAL (SELECT \(QueuedJob.columns) FROM queue q
      WHERE l.owner <> ALL ($13)
        AND q.state = 2 AND q.origin = l.origin AND q.priority = l.priority AND q.owner = l.owner
        AND coalesce(q.batch, 0) = l.batch AND NOT EXISTS (SELECT FROM batches b WHERE b.number = l.batch AND b.stage >= 4)
      ORDER BY q.rank LIMIT l.room FOR UPDATE SKIP LOCKED) q
    """
}

extension Owner {
  /// The owner's column.
  var bytes: [UInt8] { Array(name.utf8) }

  init(bytes: [UInt8]) { self.init(String(decoding: bytes, as: UTF8.self)) }
}
