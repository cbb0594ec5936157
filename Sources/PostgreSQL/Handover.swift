internal import Jobs

/// A queued job as a claim looks at it.
struct QueuedJob: Sendable {
  let id: JobID
  let priority: Int
  let rank: Int64
  let notBefore: Int64?
  /// As UTF-8; nil: it asks none, and is never held back.
  let origin: String?
  let request: Fingerprint?
  /// Whether it stands aside: among those whose origin had no room, or that waited for a load.
  let isParked: Bool
  /// Whether it is among those that waited for a load.
  let isAwaiting: Bool

  /// Of `queue AS q`, in the order that ``init(_:_:)`` takes them.
  static let columns = "q.id, q.priority, q.rank, q.not_before, q.origin, q.request, q.state"

  init?(_ rows: Rows, _ row: Int) {
    guard let id = rows.id(row, 0), let priority = rows.int(row, 1), let rank = rows.int(row, 2)
    else { return nil }
    self.id = id
    self.priority = min(max(0, Int(priority)), Priority.allCases.count - 1)
    self.rank = rank
    notBefore = rows.int(row, 3)
    origin = rows.bytes(row, 4).map { String(decoding: $0, as: UTF8.self) }
    request = rows.bytes(row, 5).flatMap { Fingerprint(bytes: $0) }
    isAwaiting = rows.int(row, 6) == QueueRow.State.awaiting.rawValue
    isParked = isAwaiting || rows.int(row, 6) == QueueRow.State.parked.rawValue
  }
}

/// Chooses jobs in the order of the queue, each where its origin has room, among those that a look at it found.
///
/// A job whose origin has none when its turn comes is to be parked: out of the queue, so that it is looked at once and not
/// by every claim after that. A parked job keeps its rank, so that its place among the others is as if it had never left.
struct Handover {
  private let count: Int
  private let moment: Timestamp
  /// What is left once these jobs were taken.
  private(set) var room: OriginRoom
  /// In the order in which they are handed over.
  private(set) var taken: [QueuedJob] = []
  private(set) var parked: [JobID] = []
  /// Those that wait for their time after all, as the clock went back.
  private(set) var undue: [JobID] = []
  /// Those that wait for another instance's load.
  private(set) var awaiting: [QueuedJob] = []
  /// For each level the queue's next jobs, the first one last, and whether others may follow.
  private var ready: [(jobs: [QueuedJob], isCut: Bool)]
  /// Parked jobs by level and origin, the first one last.
  private var waiting: [[String: [QueuedJob]]]
  /// Jobs handed over before.
  private let before: Int
  private var isExhausted = false

  /// Whether all was taken that there is, or that was asked for.
  var isDone: Bool { taken.count >= count || !isExhausted }

  /// - Parameters:
  ///   - jobs: of each level up to `page` ready ones, and of each origin with room at each level the first parked ones.
  ///   - before: how many were handed over before.
  init(
    _ count: Int, of jobs: [QueuedJob], page: Int, at moment: Timestamp, around: Surroundings,
    room: OriginRoom, after before: Int
  ) {
    (self.count, self.moment, self.room, self.before) = (count, moment, room, before)
    let levels = Priority.allCases.count
    ready = Array(repeating: ([], false), count: levels)
    waiting = Array(repeating: [:], count: levels)
    for job in jobs.sorted(by: { $0.rank > $1.rank }) {
      if job.isParked {
        waiting[job.priority][job.origin ?? "", default: []].append(job)
      } else {
        ready[job.priority].jobs.append(job)
      }
    }
    for level in ready.indices { ready[level].isCut = ready[level].jobs.count >= page }
    let held = jobs.filter { isDue($0) && around.isAwaited($0) }
    guard !held.isEmpty else { return }
    awaiting = held.filter { !$0.isAwaiting }
    for level in ready.indices {
      ready[level].jobs.removeAll(where: around.isAwaited)
      for origin in waiting[level].keys {
        waiting[level][origin]?.removeAll(where: around.isAwaited)
      }
    }
  }

  /// Takes jobs until there are enough, no more, or what comes next was not looked at.
  mutating func run() {
    while taken.count < count, !isExhausted, let job = next() { take(job) }
  }

  private mutating func take(_ job: QueuedJob) {
    taken.append(job)
    room.take(job.origin)
    if job.isParked {
      waiting[job.priority][job.origin ?? ""]?.removeLast()
    } else {
      ready[job.priority].jobs.removeLast()
    }
  }

  private mutating func next() -> QueuedJob? {
    if QueueOrder.isAgedTurn(after: before + taken.count), let job = oldest() { return job }
    guard !isExhausted else { return nil }
    for level in ready.indices.reversed() {
      let head = head(at: level)
      if isExhausted { return nil }
      if let head { return head }
    }
    return nil
  }

  /// Of the jobs at the heads of the levels the one submitted first, if that is long ago.
  private mutating func oldest() -> QueuedJob? {
    var oldest: QueuedJob?
    for level in ready.indices {
      guard let head = head(at: level) else { continue }
      if oldest.map({ head.id < $0.id }) ?? true { oldest = head }
    }
    return oldest.flatMap { QueueOrder.isOld($0.id, at: moment) ? $0 : nil }
  }

  /// The first job of a level that may go; what may not is set aside.
  private mutating func head(at level: Int) -> QueuedJob? {
    let first = firstReady(at: level)
    let parked = firstParked(at: level)
    guard let first else { return parked }
    return parked.map { $0.rank < first.rank ? $0 : first } ?? first
  }

  private mutating func firstReady(at level: Int) -> QueuedJob? {
    while let job = ready[level].jobs.last {
      if isDue(job), room[job.origin] > 0 { return job }
      ready[level].jobs.removeLast()
      if isDue(job) { parked.append(job.id) } else { undue.append(job.id) }
    }
    // Those that come next at this level were not looked at.
    if ready[level].isCut { isExhausted = true }
    return nil
  }

  private mutating func firstParked(at level: Int) -> QueuedJob? {
    var first: QueuedJob?
    for (origin, jobs) in waiting[level] where room[origin] > 0 {
      var jobs = jobs
      while let job = jobs.last, !isDue(job) {
        undue.append(job.id)
        jobs.removeLast()
      }
      waiting[level][origin] = jobs
      if let job = jobs.last, job.rank < first?.rank ?? .max { first = job }
    }
    return first
  }

  private func isDue(_ job: QueuedJob) -> Bool { job.notBefore ?? .min <= moment.milliseconds }
}
