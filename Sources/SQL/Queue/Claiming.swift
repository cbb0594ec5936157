package import Jobs
internal import Logging
internal import Synchronization

extension SQLJobStore {
  /// Finds jobs by the indexes of the queue: the time grows with the number of claimed jobs and of
  /// queues, not with the number of queued jobs. Rows that another instance has locked are skipped.
  /// If many jobs with a busy origin are seen for the first time, the claim takes several
  /// transactions.
  package func claim(
    _ count: Int, for instance: Instance, room: OriginCapacity, owners: OwnerCapacity
  ) async throws(StoreError) -> Claimed {
    var claimed = Claimed(jobs: [], nextDue: nil)
    var (cursor, served) = roundRobin.withLock { $0 }
    var step = ClaimStep(room: room, owners: owners, cursor: cursor, served: served)
    // A claim that starts in the middle of the queues continues with the first ones afterwards.
    var mayBeginAnew = !cursor.isAtStart
    repeat {
      do throws(StoreError) {
        let request = ClaimRequest(
          count: count - claimed.jobs.count, instance: instance, room: step.room,
          owners: step.owners, page: step.nextPage, needed: step.needed, isShared: isShared,
          longestWait: longestWait, cursor: cursor, served: served)
        step = try await claiming { [self] transaction, attempt in
          try transaction.claim(request) { attempt.record(numbers($0, $1)) }
        }
      } catch {
        // Jobs that earlier transactions claimed must still reach their workers.
        if claimed.jobs.isEmpty { throw error }
        log.error("failed to claim more jobs", metadata: ["error": "\(error)"])
        break
      }
      served = step.served
      for job in step.jobs {
        do throws(StoreError) { claimed.jobs.append(try job.get()) } catch {
          log.error("skipping unreadable queued job", metadata: ["error": "\(error)"])
          // Claim a replacement: fewer jobs than requested would mean that the queue is empty.
          step.isDone = false
        }
      }
      claimed.shared.formUnion(step.equalQueued)
      claimed.loadingElsewhere.formUnion(step.loadingElsewhere)
      if step.isHeldBack { claimed.isHeldBack = true }
      claimed.isQueueEmpty = step.isQueueEmpty
      if step.isDone {
        cursor = step.cursor
        step.isDone = cursor.isAtStart && !mayBeginAnew
        if cursor.isAtStart { mayBeginAnew = false }
      }
    } while !step.isDone && claimed.jobs.count < count && !Task.isCancelled
    claimed.nextDue = step.nextDue
    roundRobin.withLock { [cursor, served] in $0 = (cursor, served) }
    return claimed
  }

  /// Claims jobs by the index of requests. Usually no equal job is queued, and this costs one
  /// query.
  package func claim(
    equalTo request: Fingerprint, count: Int, for instance: Instance
  ) async throws(StoreError) -> [(job: Job, claim: Claim)] {
    guard count > 0 else { return [] }
    let isQueued = try await read {
      try !$0.execute(
        "SELECT 1 FROM queue WHERE claim IS NULL AND request = $1 LIMIT 1", [.bytes(request.bytes)]
      ).isEmpty
    }
    guard isQueued else { return [] }
    let results = try await claiming { [self] transaction, attempt in
      let moment = try transaction.checkLease(of: instance)
      let rows = try transaction.execute(
        """
        SELECT \(QueuedJob.columns) FROM queue q
        WHERE q.claim IS NULL AND q.request = $1 AND \(Transaction.isNotInStoppedBatch) ORDER BY q.priority DESC, q.rank LIMIT $2 FOR UPDATE SKIP LOCKED
        """, [.bytes(request.bytes), .int(Int64(count))])
      let jobs = rows.all.compactMap { QueuedJob(rows, $0) }
      let claims = attempt.record(numbers(instance, jobs.count))
      return try transaction.markLoading(jobs, for: instance, at: moment, claims)
    }
    return results.compactMap { result in
      do throws(StoreError) { return try result.get() } catch {
        log.error("skipping unreadable queued job", metadata: ["error": "\(error)"])
        return nil
      }
    }
  }

  /// Runs a body in its own transaction on the claiming thread.
  private func claiming<Value: Sendable>(
    _ body: @escaping @Sendable (Transaction, ClaimAttempt) throws -> Value
  ) async throws(StoreError) -> Value {
    let attempt = ClaimAttempt(unknownClaims)
    do throws(StoreError) {
      let (value, hasAwakened) = try await perform(
        on: claiming, isSynced: false
      ) { transaction in
        try attempt.requeueEarlierClaims(in: transaction)
        return (try body(transaction, attempt), transaction.readyCount > 0)
      }
      attempt.succeed()
      if hasAwakened { wakeAllInstances() }
      return value
    } catch {
      attempt.fail()
      throw error
    }
  }

  /// Returns `count` new claim numbers. A number is never reused, even if the transaction fails.
  @Sendable func numbers(_ instance: Instance, _ count: Int) -> [Int64] {
    let last = claims.add(Int64(count), ordering: .relaxed).newValue
    return (0..<Int64(count)).map { ClaimNumbers.number(last - $0, of: instance) }.reversed()
  }
}

/// The input of one transaction of a claim.
struct ClaimRequest: Sendable {
  var count: Int
  var instance: Instance
  var room: OriginCapacity
  var owners: OwnerCapacity
  /// The maximum number of ready jobs to read.
  var page: Int?
  /// The positions where earlier transactions of this claim stopped, because their next jobs were not read: the
  /// prediction does not know deferred jobs.
  var needed: Set<QueuePosition>
  /// Whether other instances may use the store.
  var isShared: Bool
  /// See ``SQLJobStore/Configuration/longestWait``.
  var longestWait: Duration
  /// The queue to start with.
  var cursor: QueueCursor
  /// The earlier claims.
  var served: ServedQueues

  /// The number of jobs to read first. In a cluster it is only slightly more than requested,
  /// because the read rows and the rows of their origins are locked and other instances skip or
  /// wait for them.
  func firstPage(atMost limit: Int) -> Int {
    isShared ? min(limit, count + 4) : max(32, min(limit, count + 16))
  }
}

/// The kinds of jobs in the queue, read at the start of a claim.
struct QueueOverview {
  /// The database's time.
  let moment: Timestamp
  let hasParkedJobs: Bool
  let hasLoadingJobs: Bool
  /// The earliest and the latest due time of the jobs that wait for theirs, in milliseconds.
  let firstDue, lastDue: Int64?
}

/// The result of one transaction of a claim.
struct ClaimStep: Sendable {
  var jobs: [Result<(job: Job, claim: Claim), StoreError>] = []
  /// The requests of claimed jobs that further queued jobs have too.
  var equalQueued: Set<Fingerprint> = []
  /// The remaining capacity.
  var room: OriginCapacity
  var owners: OwnerCapacity
  var nextDue: Timestamp?
  var isQueueEmpty = false
  var isDone = false
  /// See ``Claimed``.
  var loadingElsewhere: Set<Fingerprint> = []
  var isHeldBack = false
  /// See ``ClaimRequest/page``.
  var nextPage: Int?
  /// See ``ClaimRequest/needed``.
  var needed: Set<QueuePosition> = []
  /// The claims so far.
  var served: ServedQueues
  /// The queue to continue with.
  var cursor: QueueCursor

  init(
    room: OriginCapacity, owners: OwnerCapacity, cursor: QueueCursor, served: ServedQueues
  ) {
    (self.room, self.owners, self.cursor, self.served) = (room, owners, cursor, served)
  }
}

extension Transaction {
  /// The maximum number of rows that one transaction reads without claiming them: each is deferred
  /// by a write, and other transactions wait.
  static let maxRowsPerClaim = 1_000

  /// Excludes jobs of cancelled or purged batches.
  static let isNotInStoppedBatch =
    "NOT EXISTS (SELECT 1 FROM batches b WHERE b.number = q.batch AND b.stage >= 4)"

  fileprivate func claim(
    _ request: ClaimRequest, _ numbers: (Instance, Int) -> [Int64]
  ) throws -> ClaimStep {
    let queue = try queueOverview(for: request.instance)
    let moment = queue.moment
    var step = ClaimStep(
      room: request.room, owners: request.owners, cursor: request.cursor, served: request.served)
    guard try makeDueJobsReady(queue, longestWait: request.longestWait) else { return step }
    let page = request.page ?? request.firstPage(atMost: Self.maxRowsPerClaim)
    let queues = try claimQueues(request, queue)
    step.cursor = queues.next
    func chooser(within room: OriginCapacity) -> ClaimChooser {
      var chooser = ClaimChooser(
        request.count, at: moment, room: room, owners: request.owners,
        longestWait: request.longestWait)
      for page in queues.pages {
        chooser.addHead(page.head.id, rank: page.head.rank, at: page.place)
      }
      return chooser
    }
    let (pages, aside) = try queuedJobs(
      of: queues, page: page, request, by: chooser(within: request.room))
    step.cursor.update(with: aside)
    let jobs = pages.flatMap(\.jobs) + aside
    let around =
      try request.isShared
      ? clusterLoad(for: jobs, as: request.instance, at: moment) : ClusterLoad()
    let left = around.remainingCapacity(of: request.room, for: jobs)
    var selection = JobSelection(
      of: pages, aside, in: queues.jobs, around: around, by: chooser(within: left), at: moment)
    selection.run()
    step.served = selection.served
    try setState(of: selection.parked, to: .parked)
    try setState(of: selection.notDue, to: .due)
    try setState(of: selection.awaiting.map(\.id), to: .awaiting)
    let claims = numbers(request.instance, selection.selected.count)
    let leaders =
      try request.isShared
      ? self.leadingJobs(among: selection.selected, around, of: request.instance) : []
    step.jobs = try markLoading(
      selection.selected, for: request.instance, at: moment, claims, leading: Set(leaders.map(\.id))
    )
    try recordRequests(
      rate: request.room.overall?.requestsPerSecond ?? 0, at: leaders.compactMap(\.origin),
      at: moment)
    step.owners = selection.chooser.owners
    for job in selection.selected { step.room.countTransfer(to: job.origin) }
    for origin in Set(jobs.compactMap(\.origin)) {
      step.room.exceptions[origin] = min(step.room[origin], selection.chooser.room[origin])
    }
    // The next transaction reads these pages first. So each one changes a job or adds a position, and the claim ends.
    step.needed = request.needed
    if let position = selection.needed { step.needed.insert(position) }
    // Further jobs may be queued behind the deferred ones.
    step.isDone =
      selection.needed == nil
      && (selection.awaiting.isEmpty || selection.selected.count >= request.count)
    step.loadingElsewhere = Set(selection.awaiting.compactMap(\.request))
    let taken = Set(selection.selected.map(\.id))
    step.isHeldBack = jobs.contains {
      left[$0.origin] < request.room[$0.origin] && !around.isAwaited($0) && !taken.contains($0.id)
    }
    // If most of a page could not be claimed, the next page probably can't either, so read more.
    step.nextPage = selection.parked.count > page / 2 ? Self.maxRowsPerClaim : page
    try readNextClaimState(&step, selection.selected.compactMap(\.request), at: moment)
    return step
  }

  /// Returns the jobs that each start a transfer: all except those that join a load of this
  /// instance.
  ///
  /// The row of the leading job is locked with `FOR SHARE`, so a transaction that ends that load
  /// waits for this one and sees the joining jobs. A row that another transaction has locked may
  /// belong to a load that is ending; then the first of the joining jobs starts a transfer of its
  /// own. This transaction does not wait for that lock, because it holds the locks of the origins.
  private func leadingJobs(
    among jobs: [QueuedJob], _ around: ClusterLoad, of instance: Instance
  ) throws -> [QueuedJob] {
    let leaders = around.leadingJobs(among: jobs)
    let led = Set(leaders.compactMap(\.request))
    let joining = jobs.filter { job in
      job.origin != nil && job.request.map { !led.contains($0) } ?? false
    }
    guard !joining.isEmpty else { return leaders }
    let rows = try execute(
      """
      SELECT request FROM queue WHERE state = 4 AND leads AND instance = $1 AND request = ANY ($2)
      FOR SHARE SKIP LOCKED
      """,
      [.int(instance.number), .byteStrings(Set(joining.compactMap(\.request)).map(\.bytes))])
    var seen = Set(rows.all.compactMap { rows.bytes($0, 0).flatMap { Fingerprint(bytes: $0) } })
    let others = joining.filter { job in
      job.request.map { seen.insert($0).inserted } ?? false
    }
    return leaders + others
  }

  /// Like ``checkLease(of:)``, and looks for the kinds of jobs that a claim would have to read.
  private func queueOverview(for instance: Instance) throws -> QueueOverview {
    let rows = try execute(
      """
      SELECT moment($2), EXISTS (SELECT 1 FROM queue WHERE state = 2),
        EXISTS (SELECT 1 FROM queue WHERE state = 4),
        (SELECT not_before FROM queue WHERE state = 1 ORDER BY not_before LIMIT 1),
        (SELECT not_before FROM queue WHERE state = 1 ORDER BY not_before DESC LIMIT 1)
      FROM instances WHERE number = $1 AND NOT ended AND lease_until > lease_moment($2) FOR KEY SHARE
      """, [.int(instance.number), moment])
    guard let now = rows.int(0, 0) else { throw StoreError.leaseLost }
    return QueueOverview(
      moment: Timestamp(milliseconds: now), hasParkedJobs: rows.bool(0, 1),
      hasLoadingJobs: rows.bool(0, 2), firstDue: rows.int(0, 3), lastDue: rows.int(0, 4))
  }

  /// Makes jobs ready whose due time has passed, or is later than any valid one.
  /// - Returns: whether all such jobs are ready now; `false` if the limit for one transaction was
  ///   reached.
  private func makeDueJobsReady(_ queue: QueueOverview, longestWait: Duration) throws -> Bool {
    let latest = (queue.moment + longestWait).milliseconds
    guard let first = queue.firstDue, let last = queue.lastDue,
      first <= queue.moment.milliseconds || last > latest
    else { return true }
    return try execute(
      Self.makeDueJobsReady,
      [.int(queue.moment.milliseconds), .int(latest), .int(Int64(Self.maxRowsPerClaim))]
    ).changes < Self.maxRowsPerClaim
  }

  /// One search for each range of `not_before`, so that the index is used.
  static let makeDueJobsReady = """
    UPDATE queue SET state = 0 WHERE id IN (
      SELECT * FROM (SELECT id FROM queue WHERE state = 1 AND not_before <= $1
        ORDER BY not_before LIMIT $3 FOR UPDATE SKIP LOCKED) AS due
      UNION ALL SELECT * FROM (SELECT id FROM queue WHERE state = 1 AND not_before > $2
        ORDER BY not_before LIMIT $3 FOR UPDATE SKIP LOCKED) AS late)
    """

  private func setState(of ids: [JobID], to state: QueueRow.State) throws {
    guard !ids.isEmpty else { return }
    try add(
      "UPDATE queue SET state = $2 WHERE id = ANY ($1)", [.ids(ids), .int(state.rawValue)])
  }

  /// Marks jobs, whose rows this transaction has locked, as loading.
  /// - Parameter leaders: the jobs that start a transfer.
  /// - Returns: each job in its new state.
  func markLoading(
    _ jobs: [QueuedJob], for instance: Instance, at moment: Timestamp, _ claims: [Int64],
    leading leaders: Set<JobID> = []
  ) throws -> [Result<(job: Job, claim: Claim), StoreError>] {
    guard !jobs.isEmpty else { return [] }
    let ids = jobs.map(\.id)
    try add(
      """
      UPDATE queue SET state = 4, instance = $3, claim = n.claim, claimed_at = $4, leads = n.leads
      FROM unnest($1, $2, $5) AS n (id, claim, leads) WHERE queue.id = n.id
      """,
      [
        .ids(ids), .ints(claims), .int(instance.number), .int(moment.milliseconds),
        .bools(ids.map(leaders.contains)),
      ])
    for job in jobs {
      tallies[.phase(.queued)] -= 1
      tallies[.phase(.loading)] += 1
      let lane = job.place.queue
      let owner = lane.owner.bytes
      tallies[lane.batch == 0 ? .places(owner) : .lines(owner)] -= job.places
      batches.recordPhaseChange(in: lane.batch == 0 ? nil : lane.batch, from: .queued, to: .loading)
    }
    let rows = try self.jobs(ids)
    return zip(ids, claims).map { id, claim in
      guard let row = rows[id] else {
        return .failure(.unreadable(detail: "job \(id) is in the queue and nowhere else"))
      }
      let held = Claim(job: id, instance: instance, number: claim)
      return row.flatMap { row in
        do { return .success((try row.job(), held)) } catch {
          return .failure(StoreError(cause: error))
        }
      }
    }
  }

  /// Reads when the next job is due, whether the queue is empty and which claimed requests are
  /// queued again.
  private func readNextClaimState(
    _ step: inout ClaimStep, _ requests: [Fingerprint], at moment: Timestamp
  ) throws {
    let rows = try execute(
      """
      WITH queued AS MATERIALIZED (SELECT (SELECT not_before FROM queue WHERE state = 1 ORDER BY not_before LIMIT 1) AS due,
        EXISTS (SELECT 1 FROM queue WHERE state = 0) OR EXISTS (SELECT 1 FROM queue WHERE state = 1)
          OR EXISTS (SELECT 1 FROM queue WHERE state = 2) OR EXISTS (SELECT 1 FROM queue WHERE state = 3) AS waits)
      SELECT queued.due, queued.waits, n.request FROM queued LEFT JOIN unnest($1) AS n (request)
        ON queued.waits AND EXISTS (SELECT 1 FROM queue q WHERE q.claim IS NULL AND q.request = n.request)
      """, [.byteStrings(Set(requests).map(\.bytes))])
    step.nextDue = rows.int(0, 0).map(Timestamp.init)
    step.isQueueEmpty = !rows.bool(0, 1)
    step.equalQueued = Set(
      rows.all.compactMap { rows.bytes($0, 2).flatMap { Fingerprint(bytes: $0) } })
  }
}

/// Claims whose commit is uncertain, because the connection broke before the server answered. If
/// the commit succeeded, this instance holds the jobs but no worker runs them until the lease ends.
///
/// The next claim requeues the jobs that it finds under these numbers. A commit can take longer
/// than that, for example while the server's disk stalls. Therefore the numbers are remembered and
/// compared with the held claims at each renewal of the lease.
final class UncertainClaims: Sendable {
  private struct Numbers {
    /// The numbers that the next claim searches for.
    var next: Set<Int64> = []
    /// All numbers, or the newest ones.
    var all: Set<Int64> = []
  }

  private let numbers = Mutex(Numbers())
  /// The maximum number of remembered claims; few are lost at a time.
  private static let most = 1 << 16

  func add(_ more: Set<Int64>) {
    guard !more.isEmpty else { return }
    numbers.withLock { numbers in
      numbers.next.formUnion(more)
      numbers.all.formUnion(more)
      if numbers.all.count > Self.most {
        numbers.all = Set(numbers.all.sorted().suffix(Self.most / 2))
      }
    }
  }

  /// Makes the next claim search again for the uncertain numbers among the claims that are held
  /// now.
  /// - Returns: whether there are any.
  func recheck(among held: Set<Int64>) -> Bool {
    numbers.withLock { numbers in
      let late = numbers.all.intersection(held)
      numbers.next.formUnion(late)
      return !late.isEmpty
    }
  }

  func removeAll() -> Set<Int64> {
    numbers.withLock { numbers in
      defer { numbers.next = [] }
      return numbers.next
    }
  }
}

/// One call that claims jobs; a failed transaction is tried again within it.
final class ClaimAttempt: Sendable {
  /// Claim numbers, by the try that used them.
  private struct Tries {
    /// The last try of this call.
    var last: Set<Int64> = []
    /// The tries before the last one.
    var before: Set<Int64> = []
    /// Failed calls before this one.
    var ofOthers: Set<Int64> = []
  }

  private let unknown: UncertainClaims
  private let tries = Mutex(Tries())

  init(_ unknown: UncertainClaims) { self.unknown = unknown }

  /// Starts a try.
  /// - Returns: the numbers that earlier tries or failed calls may have claimed; this transaction
  ///   must requeue them.
  func startTry() -> Set<Int64> {
    tries.withLock { tries in
      tries.before.formUnion(tries.last)
      tries.last = []
      tries.ofOthers.formUnion(unknown.removeAll())
      return tries.before.union(tries.ofOthers)
    }
  }

  /// Starts a try and requeues the jobs that earlier tries may have claimed.
  func requeueEarlierClaims(in transaction: Transaction) throws {
    let earlier = startTry()
    if !earlier.isEmpty { try transaction.requeueClaims(earlier) }
  }

  /// Records the numbers that this try is about to claim.
  func record(_ claims: [Int64]) -> [Int64] {
    tries.withLock { $0.last.formUnion(claims) }
    return claims
  }

  /// The last try was committed. The numbers of earlier tries are checked again by the next call,
  /// because the server may still have been committing one of them while this call searched.
  func succeed() { unknown.add(tries.withLock(\.before)) }

  /// The last try was committed with these claims. All other recorded numbers belong to repeated
  /// tries or were not used.
  /// - Returns: whether there are other numbers; the next claim requeues their jobs.
  func succeed(with claims: [Int64]) -> Bool {
    let left = tries.withLock(\.last).subtracting(claims)
    unknown.add(left)
    return !left.isEmpty
  }

  /// The call failed: the next call requeues all jobs that it may have claimed.
  func fail() { unknown.add(tries.withLock { $0.last.union($0.before).union($0.ofOthers) }) }
}

extension Transaction {
  /// Requeues the jobs of uncertain claims. If other jobs share their load, those continue.
  fileprivate func requeueClaims(_ claims: Set<Int64>) throws {
    let rows = try execute(
      """
      SELECT owner, places, batch, CASE WHEN leads THEN request END, id FROM queue
      WHERE state = 4 AND instance = ANY ($1) AND claim = ANY ($2) ORDER BY id FOR UPDATE
      """, [.ints(Array(Set(claims.map { $0 >> 32 }))), .ints(Array(claims))])
    guard !rows.isEmpty else { return }
    try add(
      """
      UPDATE queue SET state = 0, instance = NULL, claim = NULL, claimed_at = NULL, leads = false
      WHERE id = ANY ($1)
      """, [.ids(rows.all.compactMap { rows.id($0, 4) })])
    for row in rows.all {
      tallies[.phase(.loading)] -= 1
      tallies[.phase(.queued)] += 1
      let batch = rows.int(row, 2).flatMap { $0 > 0 ? $0 : nil }
      if let owner = rows.bytes(row, 0) {
        tallies[batch == nil ? .places(owner) : .lines(owner)] += Int(rows.int(row, 1) ?? 0)
      }
      batches.recordPhaseChange(in: batch, from: .loading, to: .queued)
    }
    try continueLoads(Set(rows.all.compactMap { rows.bytes($0, 3) }))
  }
}

/// The load of the cluster, as far as it concerns jobs that are about to be claimed. The rows of
/// the jobs' origins are locked, so no other instance starts a transfer there until this
/// transaction ends.
struct ClusterLoad: Sendable {
  /// The number of other jobs' transfers, by origin.
  private var others: [String: Int] = [:]
  /// Origins whose rate limit allows no request now.
  private var spent: Set<String> = []
  /// Origins that another instance has kept locked for so long that this claim skips them.
  private var busy: Set<String> = []
  /// Requests that other instances are loading, and requests that this instance is loading.
  private(set) var loadingElsewhere: Set<Fingerprint> = []
  private var loadingHere: Set<Fingerprint> = []

  /// For an instance without others.
  init() {}

  /// - Parameters:
  ///   - rows: the result of ``Transaction/clusterLoad``.
  ///   - busy: the origins that other instances keep locked.
  init(_ rows: Rows, as instance: Instance, busy: Rows?) {
    for row in rows.all {
      guard let kind = rows.int(row, 0), let what = rows.bytes(row, 1),
        let number = rows.int(row, 2)
      else { continue }
      switch kind {
      case 0: others[String(decoding: what, as: UTF8.self)] = Int(number)
      case 1:
        guard let request = Fingerprint(bytes: what) else { continue }
        if number == instance.number {
          loadingHere.insert(request)
        } else {
          loadingElsewhere.insert(request)
        }
      default: spent.insert(String(decoding: what, as: UTF8.self))
      }
    }
    guard let busy else { return }
    self.busy = Set(
      busy.all.compactMap { busy.bytes($0, 0).map { String(decoding: $0, as: UTF8.self) } })
  }

  /// Returns whether another instance is loading the job's request.
  func isAwaited(_ job: QueuedJob) -> Bool {
    QueueOrder.isAwaited(origin: job.origin, request: job.request, among: loadingElsewhere)
  }

  /// Returns the capacity that remains at these jobs' origins.
  func remainingCapacity(of room: OriginCapacity, for jobs: [QueuedJob]) -> OriginCapacity {
    var left = room
    for origin in busy { left.exceptions[origin] = 0 }
    guard room.overall != nil else { return left }
    for origin in Set(jobs.compactMap(\.origin)).subtracting(busy) {
      left.exceptions[origin] = room.remaining(
        at: origin, besides: others[origin] ?? 0, mayRequest: !spent.contains(origin))
    }
    return left
  }

  /// Returns the jobs that each start a transfer: the first of equal jobs, unless their request is
  /// being loaded already.
  func leadingJobs(among jobs: [QueuedJob]) -> [QueuedJob] {
    var seen = loadingHere
    return jobs.filter { job in
      guard job.origin != nil else { return false }
      return job.request.map { seen.insert($0).inserted } ?? true
    }
  }
}

extension Transaction {
  /// Reads the load of the cluster. Waits until other instances have finished claiming jobs at the
  /// same origins.
  func clusterLoad(
    for jobs: [QueuedJob], as instance: Instance, at moment: Timestamp
  ) throws -> ClusterLoad {
    let asking = jobs.filter { $0.origin != nil }
    guard !asking.isEmpty else { return ClusterLoad() }
    let origins = SQLValue.byteStrings(Set(asking.compactMap(\.origin)).map { Array($0.utf8) })
    let requests = SQLValue.byteStrings(Set(asking.compactMap(\.request)).map(\.bytes))
    let load = SQLStatement(
      Self.clusterLoad,
      [origins, requests, .int(instance.number), .int(moment.milliseconds * 1_000)])
    // Only with several writers can another instance claim jobs at the same time.
    guard !hasOneWriter else {
      return ClusterLoad(try executeAll([load])[0], as: instance, busy: nil)
    }
    let results = try executeAll([SQLStatement("SELECT lock_origins($1)", [origins]), load])
    return ClusterLoad(results[1], as: instance, busy: results[0])
  }

  /// By the first column: 0 the number of other instances' transfers at an origin, 1 the instance that loads a request,
  /// 2 an origin whose rate limit is reached.
  static let clusterLoad = """
    SELECT 0, l.origin, count(*) FROM queue l
      WHERE l.state = 4 AND l.leads AND l.origin = ANY ($1) AND l.instance <> $3 GROUP BY l.origin
    UNION ALL SELECT 1, l.request, l.instance FROM queue l
      WHERE l.state = 4 AND l.leads AND l.request = ANY ($2)
    UNION ALL SELECT 2, o.origin, o.next_at FROM origins o
      WHERE o.origin = ANY ($1) AND o.next_at > $4
    """

  /// Records requests at origins with a rate limit.
  func recordRequests(rate: Double, at origins: [String], at moment: Timestamp) throws {
    guard rate > 0, !origins.isEmpty else { return }
    let pause = Int64(1_000_000 / rate)
    try add(
      """
      INSERT INTO origins AS o (origin, next_at)
      SELECT DISTINCT n.origin, $2 + $3 FROM unnest($1) AS n (origin) WHERE true ORDER BY 1
      ON CONFLICT (origin) DO UPDATE SET next_at = greatest(o.next_at, $2) + $3
      """,
      [
        .byteStrings(origins.map { Array($0.utf8) }), .int(moment.milliseconds * 1_000),
        .int(pause),
      ])
  }

  /// Deletes the rows of origins that may be requested again. A missing row has the same meaning.
  func deleteIdleOrigins(_ count: Int) throws {
    try add(Self.deleteIdleOrigins, [moment, .int(Int64(count))])
  }

  static let deleteIdleOrigins = """
    DELETE FROM origins WHERE origin IN (SELECT origin FROM origins
      WHERE next_at <= (SELECT moment($1)) * 1000 ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED)
    """

  /// Returns the requests that are also needed by queued jobs, or by loading jobs that do not lead
  /// a load.
  func requestsStillNeeded(_ requests: Set<[UInt8]>) throws -> Set<[UInt8]> {
    guard !requests.isEmpty else { return [] }
    let rows = try execute(
      """
      SELECT n.request FROM unnest($1) AS n (request)
      WHERE EXISTS (SELECT 1 FROM queue q WHERE q.claim IS NULL AND q.request = n.request)
        OR EXISTS (SELECT 1 FROM queue q WHERE q.state = 4 AND NOT q.leads AND q.request = n.request)
      """, [.byteStrings(Array(requests))])
    return Set(rows.all.compactMap { rows.bytes($0, 0) })
  }

  /// Ends loads whose leading job finished or was requeued. If another loading job has the same
  /// request, it becomes the leading job. Jobs that waited at other instances become ready.
  func continueLoads(_ requests: Set<[UInt8]>) throws {
    guard !requests.isEmpty else { return }
    let sorted = SQLValue.byteStrings(requests.sorted { $0.lexicographicallyPrecedes($1) })
    try add(
      """
      UPDATE queue SET leads = true WHERE id IN (
        SELECT (SELECT q.id FROM queue q WHERE q.state = 4 AND NOT q.leads AND q.request = n.request
          AND q.origin IS NOT NULL ORDER BY q.id LIMIT 1) FROM unnest($1) AS n (request)
        WHERE NOT EXISTS (SELECT 1 FROM queue l WHERE l.state = 4 AND l.leads AND l.request = n.request))
      """, [sorted])
    readyCount += try execute(
      """
      UPDATE queue SET state = 0 WHERE id IN (SELECT id FROM queue
        WHERE state = 3 AND request = ANY ($1) ORDER BY id FOR UPDATE SKIP LOCKED)
      """, [sorted]
    ).changes
  }

  /// Makes jobs ready that wait for a load that no longer exists.
  func makeWaitingJobsReady(_ count: Int) throws {
    readyCount += try execute(
      """
      UPDATE queue SET state = 0 WHERE id IN (SELECT q.id FROM queue q WHERE q.state = 3
        AND NOT EXISTS (SELECT 1 FROM queue l WHERE l.state = 4 AND l.leads AND l.request = q.request)
        LIMIT $1 FOR UPDATE OF q SKIP LOCKED)
      """, [.int(Int64(count))]
    ).changes
  }

  /// Claims queued jobs with the same request as jobs that just finished, whatever their position
  /// in the queue.
  /// - Parameters:
  ///   - spared: jobs that this transaction has requeued; they are not claimed.
  ///   - numbers: returns new claim numbers.
  func claimEqual(
    to requests: Set<[UInt8]>, except spared: [JobID], atMost limit: Int, for instance: Instance,
    _ numbers: (Int) -> [Int64]
  ) throws -> [ClaimedJob] {
    guard !requests.isEmpty else { return [] }
    let rows = try execute(
      """
      SELECT \(QueuedJob.columns) FROM queue q WHERE q.claim IS NULL AND q.request = ANY ($1) AND q.origin IS NOT NULL
        AND \(Self.isNotInStoppedBatch) AND q.id <> ALL ($5)
        AND EXISTS (SELECT 1 FROM instances WHERE number = $2 AND NOT ended AND lease_until > lease_moment($3))
      ORDER BY q.priority DESC, q.rank LIMIT $4 FOR UPDATE OF q SKIP LOCKED
      """,
      [
        .byteStrings(Array(requests)), .int(instance.number), self.moment, .int(Int64(limit)),
        .ids(spared),
      ])
    let jobs = rows.all.compactMap { QueuedJob(rows, $0) }
    guard !jobs.isEmpty else { return [] }
    let moment = try checkLease(of: instance)
    return try markLoading(jobs, for: instance, at: moment, numbers(jobs.count)).compactMap {
      result in
      try? result.get()
    }.map { ClaimedJob(job: $0.job, claim: $0.claim) }
  }
}
