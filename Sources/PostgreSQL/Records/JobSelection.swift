internal import Jobs

/// A queued job with the columns that a claim needs.
struct QueuedJob: Sendable {
  let id: JobID
  let place: QueuePosition
  let rank: Int64
  let notBefore: Int64?
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
      queue: JobQueueName(owner: owner, batch: rows.int(row, 8) ?? 0))
    notBefore = rows.int(row, 3)
    origin = rows.bytes(row, 4).map { String(decoding: $0, as: UTF8.self) }
    request = rows.bytes(row, 5).flatMap { Fingerprint(bytes: $0) }
    places = Int(rows.int(row, 9) ?? 0)
    isAwaiting = rows.int(row, 6) == QueueRow.State.awaiting.rawValue
    isParked = isAwaiting || rows.int(row, 6) == QueueRow.State.parked.rawValue
  }
}

/// Selects jobs in queue order from the rows that a claim has read. A job is selected if its origin
/// and its owner have free capacity.
///
/// If the origin has none, the job is marked as parked (deferred), so that later claims do not read
/// it again. A parked job keeps its rank and therefore its position in the queue.
struct JobSelection {
  /// The jobs found at one position, which is a priority and a queue.
  private struct Found {
    /// The next ready jobs, in reverse order.
    var ready: [QueuedJob]
    /// Whether more ready jobs may follow.
    var isCut: Bool
    /// The first ready job, if none was read.
    var unseen: (id: JobID, rank: Int64)?
    /// Parked jobs by origin, in reverse order.
    var waiting: [String: [QueuedJob]] = [:]

    init(_ page: QueuePage?) {
      ready = page?.jobs.reversed() ?? []
      isCut = page?.isCut ?? false
      if let page, page.isCut, page.jobs.isEmpty { unseen = page.head }
    }
  }

  private let count: Int
  private let moment: Timestamp
  /// The capacity that remains after the selected jobs.
  private(set) var origins: OriginCapacity
  private(set) var owners: OwnerCapacity<[UInt8]>
  /// The selected jobs, in order.
  private(set) var selected: [QueuedJob] = []
  private(set) var parked: [JobID] = []
  /// Jobs whose due time is in the future again, because the clock was set back.
  private(set) var notDue: [JobID] = []
  /// Jobs that wait for an equal load at another instance.
  private(set) var awaiting: [QueuedJob] = []
  private let places: [QueuePosition]
  /// The jobs found at each of `places`.
  private var found: [Found]
  /// Positions that may still have selectable jobs.
  private var open: [Int]
  private var turns: RoundRobin
  /// The number of jobs claimed before.
  private let before: Int
  private var isExhausted = false

  /// False if the selection ended early because the next jobs were not read.
  var isDone: Bool { selected.count >= count || !isExhausted }

  /// - Parameters:
  ///   - pages: ready jobs.
  ///   - aside: the first parked jobs of each origin with free capacity.
  ///   - plan: the round-robin state, and the number of jobs claimed before.
  init(
    _ count: Int, of pages: [QueuePage], _ aside: [QueuedJob], around: ClusterLoad,
    room: OriginCapacity, by plan: ClaimPlan
  ) {
    (self.count, self.origins, moment) = (count, room, plan.moment)
    (turns, owners, before) = (plan.turns, plan.owners, plan.before)
    var byPlace = Dictionary(pages.map { ($0.place, Found($0)) }) { first, _ in first }
    for job in aside.sorted(by: { $0.rank > $1.rank }) {
      byPlace[job.place, default: Found(nil)].waiting[job.origin ?? "", default: []].append(job)
    }
    places = Array(byPlace.keys)
    found = places.map { byPlace[$0] ?? Found(nil) }
    open = places.indices.filter { [places, owners] in
      owners.hasCapacity(for: places[$0].queue.owner)
    }
    let held = (pages.flatMap(\.jobs) + aside).filter { isDue($0) && around.isAwaited($0) }
    guard !held.isEmpty else { return }
    awaiting = held.filter { !$0.isAwaiting }
    for index in found.indices {
      found[index].ready.removeAll(where: around.isAwaited)
      for origin in found[index].waiting.keys {
        found[index].waiting[origin]?.removeAll(where: around.isAwaited)
      }
    }
  }

  /// Selects jobs until there are enough, no more exist, or the next ones were not read.
  mutating func run() {
    while selected.count < count, !isExhausted, let (job, index) = next() { select(job, at: index) }
  }

  private mutating func select(_ job: QueuedJob, at index: Int) {
    selected.append(job)
    origins.countTransfer(to: job.origin)
    turns.recordClaim(of: job.place.queue)
    owners.countJob(of: job.place.queue.owner)
    open.removeAll { [places, owners] in !owners.hasCapacity(for: places[$0].queue.owner) }
    if job.isParked {
      found[index].waiting[job.origin ?? ""]?.removeLast()
    } else {
      found[index].ready.removeLast()
    }
  }

  private mutating func next() -> (QueuedJob, Int)? {
    let turn = before + selected.count
    if QueueOrder.choosesByAge(after: turn) {
      if let oldest = oldest() { return oldest }
      guard !isExhausted else { return nil }
    }
    let owners = QueueOrder.choosesByOwner(after: turn)
    while let index = turns.first(of: open, among: places, owners: owners) {
      if let head = head(at: index) { return (head, index) }
      if isExhausted { return nil }
      open.removeAll { $0 == index }
    }
    return nil
  }

  /// Returns the oldest job among the first jobs of all positions, if it has waited long enough to
  /// be preferred.
  private mutating func oldest() -> (QueuedJob, Int)? {
    var oldest: (job: QueuedJob, index: Int)?
    var unseen: JobID?
    for index in open {
      let first: QueuedJob?
      if let ready = found[index].unseen {
        let parked = firstParked(at: index)
        first = parked.flatMap { $0.rank < ready.rank ? $0 : nil }
        if first == nil { unseen = min(unseen ?? ready.id, ready.id) }
      } else {
        first = head(at: index)
      }
      guard let head = first else {
        if isExhausted { return nil }
        continue
      }
      if oldest.map({ head.id < $0.job.id }) ?? true { oldest = (head, index) }
    }
    if let unseen, QueueOrder.isOld(unseen, at: moment), oldest.map({ unseen < $0.job.id }) ?? true
    {
      isExhausted = true
      return nil
    }
    return oldest.flatMap { QueueOrder.isOld($0.job.id, at: moment) ? $0 : nil }
  }

  /// Returns the first selectable job of a position and defers the jobs before it.
  private mutating func head(at index: Int) -> QueuedJob? {
    let first = firstReady(at: index)
    guard !isExhausted else { return nil }
    let parked = firstParked(at: index)
    guard let first else { return parked }
    return parked.map { $0.rank < first.rank ? $0 : first } ?? first
  }

  private mutating func firstReady(at index: Int) -> QueuedJob? {
    while let job = found[index].ready.last {
      if isDue(job), origins[job.origin] > 0 { return job }
      found[index].ready.removeLast()
      if isDue(job) { parked.append(job.id) } else { notDue.append(job.id) }
    }
    // The next jobs of this position were not read.
    if found[index].isCut { isExhausted = true }
    return nil
  }

  private mutating func firstParked(at index: Int) -> QueuedJob? {
    var first: QueuedJob?
    for (origin, jobs) in found[index].waiting where origins[origin] > 0 {
      var jobs = jobs
      while let job = jobs.last, !isDue(job) {
        notDue.append(job.id)
        jobs.removeLast()
      }
      found[index].waiting[origin] = jobs
      if let job = jobs.last, job.rank < first?.rank ?? .max { first = job }
    }
    return first
  }

  private func isDue(_ job: QueuedJob) -> Bool { job.notBefore ?? .min <= moment.milliseconds }
}
