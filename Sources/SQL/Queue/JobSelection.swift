internal import Jobs

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
