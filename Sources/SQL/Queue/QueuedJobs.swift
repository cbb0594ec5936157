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

/// A queue with parked jobs of an origin that has free capacity.
struct ParkedQueue {
  let origin: [UInt8]
  /// The number of jobs that can be claimed there.
  let room: Int64
  let place: QueuePosition
}

/// The queues with ready jobs, and the number of loading jobs of each queue.
struct ClaimQueues {
  /// The queues with ready jobs; none of these jobs was read yet.
  var pages: [QueuePage] = []
  /// The queues with parked jobs that can be claimed.
  var parked: [ParkedQueue] = []
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
  /// The maximum count of a queue's loading jobs. Queues with more are treated alike.
  private static let mostLoading = 128
  /// The maximum number of queries for further jobs if fewer were found than expected.
  private static let mostRounds = 4

  /// Finds the queues that have ready jobs, and those that have parked jobs of origins with free capacity. Each queue
  /// costs one index search, however many jobs are queued. Does not lock jobs. An owner without free capacity costs
  /// one search.
  func claimQueues(_ request: ClaimRequest, _ queue: QueueOverview) throws -> ClaimQueues {
    let (cursor, full) = (request.cursor, request.owners.full)
    let names = SQLValue.byteStrings(full.map(\.bytes))
    let (room, after) = (request.room, request.cursor.parked)
    var statements = [
      SQLStatement(
        Self.readyQueues,
        [
          .ints(cursor.ready.indices.map(Int64.init)),
          .byteStrings(cursor.ready.map { $0?.owner.bytes ?? [] }),
          .ints(cursor.ready.map { $0?.batch ?? -1 }), names, .bool(!full.isEmpty),
        ])
    ]
    if queue.hasLoadingJobs { statements.append(SQLStatement(Self.loadingQueues)) }
    if queue.hasParkedJobs {
      statements.append(
        SQLStatement(
          Self.parkedQueues,
          [
            .byteStrings(room.exceptions.filter { $0.value <= 0 }.keys.map { Array($0.utf8) }),
            .bool(room.usual > 0),
            .byteStrings(room.exceptions.filter { $0.value > 0 }.keys.map { Array($0.utf8) }),
            .ints(cursor.ready.indices.map(Int64.init)),
            .bytes(after?.owner.bytes ?? []), .int(after?.batch ?? -1), names, .bool(!full.isEmpty),
          ]))
    }
    let found = try executeAll(statements)
    var queues = ClaimQueues(after: request.served)
    let ready = found[0]
    for row in ready.all {
      guard let priority = ready.int(row, 0).map({ Int($0) }),
        let queue = ready.queue(row, from: 1),
        let id = ready.id(row, 3), let number = ready.int(row, 4), let rank = ready.int(row, 5)
      else { continue }
      if number == QueueCursor.maxQueues { queues.next.ready[priority] = queue }
      guard !ready.bool(row, 6), !full.contains(queue.owner) else { continue }
      let place = QueuePosition(priority: priority, queue: queue)
      queues.pages.append(QueuePage(place: place, head: (id, rank)))
      queues.jobs.ready.addReady(1, at: place)
    }
    if queue.hasLoadingJobs {
      for row in found[1].all {
        guard let queue = found[1].queue(row, from: 0), let count = found[1].int(row, 2) else {
          continue
        }
        queues.jobs.ready.addLoading(Int(count), of: queue)
      }
    }
    guard queue.hasParkedJobs, let parked = found.last else { return queues }
    queues.parked = parked.all.compactMap { row in
      guard let origin = parked.bytes(row, 0), let priority = parked.int(row, 1),
        let queue = parked.queue(row, from: 2)
      else { return nil }
      let left = room[String(decoding: origin, as: UTF8.self)]
      return ParkedQueue(
        origin: origin, room: Int64(min(left, request.count)),
        place: QueuePosition(priority: Int(priority), queue: queue))
    }
    return queues
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
        zip(short, counts).map { (pages[$0], $1) }, queues.parked, page: page, request,
        withAside: round == 0)
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
    _ wanted: [(page: QueuePage, count: Int)], _ parked: [ParkedQueue], page: Int,
    _ request: ClaimRequest, withAside: Bool
  ) throws -> [QueuedJob] {
    var statements = wanted.map { page, count in
      SQLStatement(
        Self.readyJobs,
        page.place.values + [.int(page.jobs.last?.rank ?? .min), .int(Int64(count))])
    }
    if withAside {
      statements += parked.map { parked in
        SQLStatement(
          Self.parkedJobs, parked.place.values + [.bytes(parked.origin), .int(parked.room)])
      }
    }
    if withAside, request.isShared {
      statements.append(
        SQLStatement(
          Self.awaitingJobs,
          [
            .int(request.instance.number), .byteStrings(request.owners.full.map(\.bytes)),
            .int(Int64(page)),
          ]))
    }
    return try executeAll(statements).flatMap { rows in
      rows.all.compactMap { QueuedJob(rows, $0) }
    }
  }

  /// Selects the first queue behind the given one. If the owner is full, all of its queues are skipped.
  ///
  /// Two searches instead of one with `(owner, batch) > (…)`: for that, SQLite would read all jobs of the given queue.
  /// - Parameter full: The full owners, and whether there are any: SQLite would read an empty list each time.
  private static func next(
    _ condition: String, behind owner: String, _ batch: String, full: (owners: String, any: String)
  ) -> String {
    """
    coalesce(CASE WHEN NOT \(full.any) OR \(owner) <> ALL (\(full.owners)) THEN (SELECT q.id FROM queue q
        WHERE \(condition) AND q.owner = \(owner) AND q.batch > \(batch) ORDER BY q.batch, q.rank LIMIT 1) END,
      (SELECT q.id FROM queue q WHERE \(condition) AND q.owner > \(owner)
        ORDER BY q.owner, q.batch, q.rank LIMIT 1))
    """
  }

  /// The first ready job of each queue, by priority.
  static let readyQueues = """
    WITH RECURSIVE heads (priority, id, n) AS (
      SELECT s.priority, \(next("q.state = 0 AND q.priority = s.priority", behind: "s.owner", "s.batch", full: ("$4", "$5"))), 1
      FROM unnest($1, $2, $3) AS s (priority, owner, batch)
      UNION ALL SELECT h.priority,
        \(next("q.state = 0 AND q.priority = h.priority", behind: "p.owner", "p.batch", full: ("$4", "$5"))), h.n + 1
      FROM heads h JOIN queue p ON p.id = h.id WHERE h.n < \(QueueCursor.maxQueues))
    SELECT h.priority, p.owner, p.batch, p.id, h.n, p.rank,
      EXISTS (SELECT 1 FROM batches b WHERE b.number = p.batch AND b.stage >= 4)
    FROM heads h JOIN queue p ON p.id = h.id
    """

  /// The number of loading jobs of each queue.
  static let loadingQueues = """
    WITH RECURSIVE heads (id) AS (
      SELECT * FROM (SELECT id FROM queue WHERE state = 4 ORDER BY owner, batch LIMIT 1) AS first
      UNION ALL SELECT coalesce((SELECT q.id FROM queue q WHERE q.state = 4 AND q.owner = p.owner
          AND q.batch > p.batch ORDER BY q.batch LIMIT 1),
        (SELECT q.id FROM queue q WHERE q.state = 4 AND q.owner > p.owner ORDER BY q.owner, q.batch LIMIT 1))
        FROM heads h JOIN queue p ON p.id = h.id)
    SELECT p.owner, p.batch, (SELECT count(*) FROM (SELECT 1 FROM queue q
      WHERE q.state = 4 AND q.owner = p.owner AND q.batch = p.batch LIMIT \(mostLoading)) AS l)
    FROM heads h JOIN queue p ON p.id = h.id
    """

  /// The queues with parked jobs of origins that have free capacity. $1 lists full origins. If most others are full too ($2
  /// is false), $3 lists those that are not.
  static let parkedQueues = """
    WITH RECURSIVE origins (origin) AS (
      SELECT * FROM (SELECT origin FROM queue WHERE state = 2 ORDER BY origin LIMIT 1) AS first
      UNION ALL SELECT (SELECT q.origin FROM queue q WHERE q.state = 2 AND q.origin > o.origin
        ORDER BY q.origin LIMIT 1) FROM origins o WHERE o.origin IS NOT NULL
    ), heads (origin, priority, id, n) AS (
      SELECT o.origin, l.priority,
        \(next("q.state = 2 AND q.origin = o.origin AND q.priority = l.priority", behind: "$5", "$6", full: ("$7", "$8"))), 1
      FROM origins o CROSS JOIN unnest($4) AS l (priority)
      WHERE o.origin <> ALL ($1) AND ($2 OR o.origin = ANY ($3))
      UNION ALL SELECT h.origin, h.priority,
        \(next("q.state = 2 AND q.origin = h.origin AND q.priority = h.priority", behind: "p.owner", "p.batch", full: ("$7", "$8"))),
        h.n + 1
      FROM heads h JOIN queue p ON p.id = h.id WHERE h.n < \(QueueCursor.maxQueues)
    )
    SELECT h.origin, h.priority, p.owner, p.batch
    FROM heads h JOIN queue p ON p.id = h.id WHERE NOT $8 OR p.owner <> ALL ($7)
    """

  private static let isAt = "q.priority = $1 AND q.owner = $2 AND q.batch = $3"

  /// The next ready jobs of a queue.
  static let readyJobs = """
    SELECT \(QueuedJob.columns) FROM queue q WHERE q.state = 0 AND \(isAt) AND q.rank > $4
      AND \(isNotInStoppedBatch) ORDER BY q.rank LIMIT $5 FOR UPDATE SKIP LOCKED
    """

  /// The first parked jobs of an origin in a queue.
  static let parkedJobs = """
    SELECT \(QueuedJob.columns) FROM queue q WHERE q.state = 2 AND \(isAt) AND q.origin = $4
      AND \(isNotInStoppedBatch) ORDER BY q.rank LIMIT $5 FOR UPDATE SKIP LOCKED
    """

  /// Jobs that wait for a load of this instance. Two jobs may lead loads of one request: see
  /// ``leadingJobs(among:_:of:)``.
  static let awaitingJobs = """
    SELECT \(QueuedJob.columns) FROM queue q
    WHERE EXISTS (SELECT 1 FROM queue WHERE state = 3) AND q.state = 3 AND q.request IN (
        SELECT l.request FROM queue l WHERE l.state = 4 AND l.leads AND l.instance = $1)
      AND q.owner <> ALL ($2) AND \(isNotInStoppedBatch)
    ORDER BY q.priority DESC, q.rank LIMIT $3 FOR UPDATE OF q SKIP LOCKED
    """
}

extension QueuePosition {
  /// The priority, the owner and the batch, in this order.
  fileprivate var values: [SQLValue] {
    [.int(Int64(priority)), .bytes(queue.owner.bytes), .int(queue.batch)]
  }
}

extension Rows {
  /// Reads the owner and the batch of a queue.
  fileprivate func queue(_ row: Int, from column: Int) -> JobQueueName? {
    guard let owner = bytes(row, column), let batch = int(row, column + 1) else { return nil }
    return JobQueueName(owner: Owner(bytes: owner), batch: batch)
  }
}

extension Owner {
  /// The owner's column.
  var bytes: [UInt8] { Array(name.utf8) }

  init(bytes: [UInt8]) { self.init(String(decoding: bytes, as: UTF8.self)) }
}

/// A queued job with the columns that a claim needs.
struct QueuedJob: Sendable {
  let id: JobID
  let place: QueuePosition
  let rank: Int64
  let notBefore: Timestamp?
  /// The job's origin; `nil` if it needs none and is never deferred.
  let origin: String?
  let request: Fingerprint?
  /// The number of queue slots that it occupies.
  let places: Int
  /// Whether the job is deferred: its origin had no capacity, or it waited for an equal load.
  let isParked: Bool
  /// Whether the job waited for an equal load at another instance.
  let isAwaiting: Bool

  /// The columns of `queue AS q`, in the order that ``init(_:_:)`` reads them.
  static let columns =
    "q.id, q.priority, q.rank, q.not_before, q.origin, q.request, q.state, q.owner, q.batch, q.places"

  init?(_ rows: Rows, _ row: Int) {
    guard let id = rows.id(row, 0), let priority = rows.int(row, 1), let rank = rows.int(row, 2),
      let owner = rows.bytes(row, 7)
    else { return nil }
    self.id = id
    self.rank = rank
    place = QueuePosition(
      priority: min(max(0, Int(priority)), Priority.allCases.count - 1),
      queue: JobQueueName(owner: Owner(bytes: owner), batch: rows.int(row, 8) ?? 0))
    notBefore = rows.int(row, 3).map(Timestamp.init)
    origin = rows.bytes(row, 4).map { String(decoding: $0, as: UTF8.self) }
    request = rows.bytes(row, 5).flatMap { Fingerprint(bytes: $0) }
    places = Int(rows.int(row, 9) ?? 0)
    isAwaiting = rows.int(row, 6) == QueueRow.State.awaiting.rawValue
    isParked = isAwaiting || rows.int(row, 6) == QueueRow.State.parked.rawValue
  }
}

/// Selects jobs from the rows that a claim has read, by a ``ClaimChooser``.
struct JobSelection {
  /// The deferred jobs of an origin at a position.
  private struct Deferred: Hashable {
    let origin: String
    let position: QueuePosition
  }

  private(set) var chooser: ClaimChooser
  private var queues: ClaimableJobs
  /// The jobs that were read; a candidate's number is its index.
  private let jobs: [QueuedJob]
  /// Deferred jobs that are not in `queues` yet, in reverse order.
  private var deferred: [Deferred: [QueuedCandidate]] = [:]
  /// The selected jobs, in order.
  private(set) var selected: [QueuedJob] = []
  private(set) var parked: [JobID] = []
  /// Jobs whose due time is in the future again, because the clock was set back.
  private(set) var notDue: [JobID] = []
  /// Jobs that wait for an equal load at another instance.
  private(set) var awaiting: [QueuedJob] = []
  /// The selection ended early, because the next jobs at this position were not read.
  private(set) var needed: QueuePosition?

  /// The claims so far.
  var served: ServedQueues { queues.ready.served }

  /// - Parameters:
  ///   - pages: Ready jobs.
  ///   - aside: The first parked jobs of each origin with free capacity.
  init(
    of pages: [QueuePage], _ aside: [QueuedJob], in queues: ClaimableJobs, around: ClusterLoad,
    by chooser: ClaimChooser, at moment: Timestamp
  ) {
    (self.queues, self.chooser) = (queues, chooser)
    let found = pages.flatMap(\.jobs) + aside
    func waits(_ job: QueuedJob) -> Bool {
      QueueOrder.isDue(job.notBefore, at: moment) && around.isAwaited(job)
    }
    awaiting = found.filter { waits($0) && !$0.isAwaiting }
    jobs = found.filter { !waits($0) }
    var byPosition: [QueuePosition: [QueuedCandidate]] = [:]
    for (index, job) in jobs.enumerated().reversed() {
      let candidate = QueuedCandidate(
        number: Int64(index), id: job.id, position: job.place, rank: job.rank,
        notBefore: job.notBefore, origin: job.origin)
      if !job.isParked {
        byPosition[job.place, default: []].append(candidate)
      } else if let origin = job.origin {
        deferred[Deferred(origin: origin, position: job.place), default: []].append(candidate)
      }
    }
    for page in pages where !page.isUnread {
      let jobs = byPosition[page.place] ?? []
      self.chooser.add(jobs.reversed(), at: page.place, hasMore: page.isCut)
    }
    for key in deferred.keys {
      deferred[key]?.sort { $0.rank > $1.rank }
      readDeferred(key)
    }
  }

  private mutating func readDeferred(_ key: Deferred) {
    queues.deferred.setFirst(
      deferred[key]?.popLast(), of: key.origin, at: key.position,
      served: served.lastTurn(of: key.position.queue))
  }

  /// Selects jobs until there are enough, no more exist, or the next ones were not read.
  mutating func run() {
    while true {
      switch chooser.next(from: &queues) {
      case .claim(let job):
        selected.append(jobs[Int(job.number)])
        queues.ready.addLoading(1, of: job.position.queue)
        queues.deferred.remove(job, served: served.lastTurn(of: job.position.queue))
      case .deferJob(let job): parked.append(jobs[Int(job.number)].id)
      case .postpone(let job):
        notDue.append(jobs[Int(job.number)].id)
        queues.deferred.remove(job, served: served.lastTurn(of: job.position.queue))
      case .readDeferred(let origin, let position):
        readDeferred(Deferred(origin: origin, position: position))
      case .readReady(let position, _):
        needed = position
        return
      case .end: return
      }
    }
  }
}
