internal import Jobs

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

  /// - Parameter rows: the result of the SQL function `cluster_load`.
  init(_ rows: Rows, as instance: Instance) {
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
      case 2: spent.insert(String(decoding: what, as: UTF8.self))
      default: busy.insert(String(decoding: what, as: UTF8.self))
      }
    }
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
    let rows = try execute(
      "SELECT * FROM cluster_load($1, $2, $3, $4)",
      [
        .int(instance.number), .int(moment.milliseconds),
        .byteStrings(Set(asking.compactMap(\.origin)).map { Array($0.utf8) }),
        .byteStrings(Set(asking.compactMap(\.request)).map(\.bytes)),
      ])
    return ClusterLoad(rows, as: instance)
  }

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
      WHERE EXISTS (SELECT 1 FROM queue q WHERE q.state <> 4 AND q.request = n.request)
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
        ORDER BY q.id LIMIT $1 FOR UPDATE OF q SKIP LOCKED)
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
      SELECT \(QueuedJob.columns) FROM queue q WHERE q.state <> 4 AND q.request = ANY ($1) AND q.origin IS NOT NULL
        AND \(Self.isNotInStoppedBatch) AND q.id <> ALL ($5)
        AND EXISTS (SELECT 1 FROM instances WHERE number = $2 AND NOT ended AND lease_until > moment($3))
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
