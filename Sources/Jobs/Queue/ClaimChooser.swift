/// A queued job, as far as the choice of the next job depends on it.
package struct QueuedCandidate: Sendable, Equatable {
  /// The store's own number of the job. The chooser does not interpret it.
  package var number: Int64
  /// The job's ID; nil if it is unreadable. Then the job's age is unknown.
  package var id: JobID?
  package var position: QueuePosition
  /// The order of jobs at one position.
  package var rank: Int64
  /// The job waits until then.
  var notBefore: Timestamp?
  /// The job's origin; nil if it needs none and is never deferred.
  package var origin: String?

  package init(
    number: Int64, id: JobID?, position: QueuePosition, rank: Int64, notBefore: Timestamp?,
    origin: String?
  ) {
    (self.number, self.id, self.position) = (number, id, position)
    (self.rank, self.notBefore, self.origin) = (rank, notBefore, origin)
  }
}

/// The queued jobs that a claim chooses from, as far as a store has them in memory. The store records every
/// change of a job here, and a ``ClaimChooser`` reads it.
package struct ClaimableJobs: Sendable {
  package var ready: ReadyQueues
  package var deferred = DeferredJobs()

  /// - Parameter served: The earlier claims.
  package init(after served: ServedQueues = ServedQueues()) { ready = ReadyQueues(after: served) }
}

/// Chooses the jobs of one claim in the order of ``QueueOrder``, with regard to the capacity of origins and owners.
///
/// This is a pure value. The store asks for the ``next(from:)`` step, does what it says, and asks again until
/// ``Step/end``. It need not have read any job before. The chooser asks for pages of jobs where it needs them,
/// and passes over positions and deferred jobs that cannot be next.
///
/// A ready job whose origin has no capacity is to be deferred, so that later claims do not read it again. A
/// deferred job keeps its rank: once its origin has capacity again, it competes with the ready jobs of its
/// position as before. All jobs of an owner without capacity are skipped together.
package struct ClaimChooser: Sendable {
  /// The next action of the store.
  package enum Step: Sendable, Equatable {
    /// Claim this job. The store then counts it as loading.
    case claim(QueuedCandidate)
    /// Defer this ready job, because its origin has no capacity.
    case deferJob(QueuedCandidate)
    /// Let this ready or deferred job wait for its due time, because the clock was set back.
    case postpone(QueuedCandidate)
    /// Pass the next ready jobs of this position to ``add(_:at:hasMore:)``; `count` is a suggestion. A store that
    /// can't read them now ends the claim, and continues with a new chooser.
    case readReady(QueuePosition, count: Int)
    /// Read the first deferred job of this origin and position: ``DeferredJobs/setFirst(_:of:at:served:)``.
    case readDeferred(origin: String, QueuePosition)
    /// Enough jobs were chosen, or no other can be claimed, or too many were deferred: see
    /// ``ClaimChooser/isDone``.
    case end
  }

  /// The ready jobs of one position that were read.
  private struct Page {
    /// The next jobs, in reverse order.
    var jobs: [QueuedCandidate] = []
    /// Whether more jobs may follow.
    var hasMore = true
    /// The number of jobs to read next.
    var size: Int
  }

  /// The search for the oldest job.
  private struct AgeScan {
    /// The positions that are not compared yet, in reverse order.
    var positions: [QueuePosition]
    /// The oldest first job so far; nil instead of the job if it was not read yet.
    var oldest: (id: JobID, job: QueuedCandidate?, position: QueuePosition)?
  }

  /// The result of a search for a job.
  private enum Found {
    case job(QueuedCandidate)
    /// The store has to do this first.
    case step(Step)
    case none
  }

  /// The maximum number of queues whose first jobs are compared to find the oldest job.
  private static let maxHeads = 32
  /// The maximum number of claims that ``prediction(of:from:available:)`` simulates; it extrapolates the rest.
  private static let maxPredicted = 128

  private var count: Int
  private let moment: Timestamp
  private let longestWait: Duration?
  /// The number of jobs that this claim may still defer.
  private var deferrable: Int
  /// The capacity that remains after the chosen jobs.
  package private(set) var room: OriginCapacity
  package private(set) var owners: OwnerCapacity
  /// The number of chosen jobs.
  private var chosen = 0
  /// The number of positions compared so far.
  package private(set) var inspected = 0

  private var pages: [QueuePosition: Page] = [:]
  /// The first ready jobs of positions whose page was not read.
  private var heads: [QueuePosition: (id: JobID, rank: Int64)] = [:]
  /// Positions without further jobs that can be claimed.
  private var closed: Set<QueuePosition> = []
  /// Origins with capacity that may have deferred jobs; nil before the first step.
  private var open: [String]?
  /// The position of the next job, while its first job is being searched.
  private var current: QueuePosition?
  private var scan: AgeScan?
  /// Whether no job is old enough to be chosen by its age now.
  private var hasComparedAges = false

  /// Whether nothing more can be claimed. False if the limit of deferred jobs was reached first.
  package var isDone: Bool { deferrable > 0 || chosen >= count }

  /// - Parameters:
  ///   - moment: The time of the claim.
  ///   - longestWait: See ``QueueOrder/isDue(_:at:longestWait:)``.
  ///   - maxDeferred: The number of jobs that may be deferred before the claim ends.
  package init(
    _ count: Int, at moment: Timestamp, room: OriginCapacity, owners: OwnerCapacity,
    longestWait: Duration? = nil, maxDeferred: Int = .max
  ) {
    (self.count, self.moment, self.longestWait) = (count, moment, longestWait)
    (self.room, self.owners, deferrable) = (room, owners, maxDeferred)
  }

  /// Supplies the next ready jobs of a position, in the order of their ranks.
  /// - Parameter hasMore: Whether more ready jobs may follow.
  package mutating func add(
    _ jobs: [QueuedCandidate], at position: QueuePosition, hasMore: Bool
  ) {
    let size = pages[position]?.size ?? max(1, count - chosen)
    pages[position] = Page(
      jobs: jobs.reversed(), hasMore: hasMore, size: min(128, max(16, size * 2)))
  }

  /// Supplies the ID and the rank of a position's first ready job, which the store has not read completely. The
  /// position's page is then read only if its first job is next.
  package mutating func addHead(_ id: JobID, rank: Int64, at position: QueuePosition) {
    heads[position] = (id, rank)
  }

  /// Returns the next step of the claim.
  package mutating func next(from jobs: inout ClaimableJobs) -> Step {
    guard chosen < count, deferrable > 0 else { return .end }
    let turn = jobs.ready.served.turns
    if QueueOrder.choosesByAge(after: turn), !hasComparedAges {
      switch oldest(in: jobs) {
      case .job(let job): return claim(job, from: &jobs)
      case .step(let step): return step
      case .none: hasComparedAges = true
      }
    }
    let owners = QueueOrder.choosesByOwner(after: turn)
    while let position = current ?? nextPosition(in: jobs, owners: owners) {
      current = position
      switch head(at: position, in: jobs) {
      case .job(let job): return claim(job, from: &jobs)
      case .step(let step): return step
      case .none: current = nil
      }
    }
    return .end
  }

  private mutating func claim(_ job: QueuedCandidate, from jobs: inout ClaimableJobs) -> Step {
    if pages[job.position]?.jobs.last == job { pages[job.position]?.jobs.removeLast() }
    chosen += 1
    jobs.ready.recordClaim(of: job.position.queue)
    owners.countJob(of: job.position.queue.owner)
    room.countTransfer(to: job.origin)
    if let origin = job.origin, room[origin] <= 0 { open?.removeAll { $0 == origin } }
    (current, scan, hasComparedAges) = (nil, nil, false)
    return .claim(job)
  }
}

/// Queue order.
extension ClaimChooser {
  /// Returns the position that is next in round-robin order.
  private mutating func nextPosition(in jobs: ClaimableJobs, owners: Bool) -> QueuePosition? {
    let ready = jobs.ready.next(
      ownersFirst: owners, of: self.owners.hasCapacity(for:), except: closed, &inspected)
    return jobs.ready.first(
      of: distinct(ready, deferredPositions(in: jobs, last: false)), owners: owners)
  }

  /// Returns positions with deferred jobs that may be claimed.
  private mutating func deferredPositions(in jobs: ClaimableJobs, last: Bool) -> [QueuePosition] {
    let positions = openOrigins(jobs).flatMap { [owners, closed] in
      jobs.deferred.positions(of: $0, ownedBy: owners.hasCapacity(for:), last: last) {
        !closed.contains($0)
      }
    }
    inspected += positions.count
    return positions
  }

  private func distinct(_ a: [QueuePosition], _ b: [QueuePosition]) -> [QueuePosition] {
    b.isEmpty ? a : Array(Set(a + b))
  }

  private mutating func openOrigins(_ jobs: ClaimableJobs) -> [String] {
    if let open { return open }
    let found = jobs.deferred.origins.filter { room[$0] > 0 }
    open = found
    return found
  }

  /// Finds the oldest job among the first jobs of all positions, if it has waited very long. This prevents
  /// starvation.
  private mutating func oldest(in jobs: ClaimableJobs) -> Found {
    if scan == nil { scan = newScan(of: jobs) }
    while let position = scan?.positions.last {
      var first: (id: JobID?, job: QueuedCandidate?)
      switch head(at: position, in: jobs) {
      case .job(let job): first = (job.id, job)
      case .step(let step):
        guard case .readReady = step, pages[position] == nil, let head = heads[position] else {
          return .step(step)
        }
        first = (head.id, nil)
      case .none: first = (nil, nil)
      }
      scan?.positions.removeLast()
      guard let id = first.id, scan?.oldest.map({ id < $0.id }) ?? true else { continue }
      scan?.oldest = (id, first.job, position)
    }
    guard let oldest = scan?.oldest, QueueOrder.isOld(oldest.id, at: moment) else { return .none }
    guard let job = oldest.job else {
      // Compare again when the page was read, because its first job may not be available any more.
      scan = nil
      return .step(readReady(at: oldest.position))
    }
    return .job(job)
  }

  private mutating func newScan(of jobs: ClaimableJobs) -> AgeScan {
    let ready = jobs.ready.last(
      Self.maxHeads, of: owners.hasCapacity(for:), except: closed, &inspected)
    let positions = jobs.ready.sorted(
      distinct(ready, deferredPositions(in: jobs, last: true)), owners: true)
    return AgeScan(positions: positions.suffix(Self.maxHeads).reversed())
  }

  /// Finds the first job of a position that can be claimed, ready or deferred.
  private mutating func head(at position: QueuePosition, in jobs: ClaimableJobs) -> Found {
    let deferred = firstDeferred(at: position, in: jobs)
    if case .step = deferred { return deferred }
    if case .job(let job) = deferred, pages[position] == nil, let head = heads[position],
      job.rank < head.rank
    {
      return due(job)
    }
    let ready = firstReady(at: position, in: jobs)
    switch (ready, deferred) {
    case (.step, _): return ready
    case (.job(let a), .job(let b)): return b.rank < a.rank ? due(b) : ready
    case (_, .job(let job)): return due(job)
    case (.job, _): return ready
    default:
      closed.insert(position)
      return .none
    }
  }

  private mutating func firstReady(at position: QueuePosition, in jobs: ClaimableJobs) -> Found {
    guard let job = pages[position]?.jobs.last else {
      let hasMore = pages[position]?.hasMore ?? true
      return hasMore && jobs.ready.isReady(position) ? .step(readReady(at: position)) : .none
    }
    guard case .job = due(job) else {
      pages[position]?.jobs.removeLast()
      return .step(.postpone(job))
    }
    guard room[job.origin] > 0 else {
      pages[position]?.jobs.removeLast()
      deferrable -= 1
      return .step(.deferJob(job))
    }
    return .job(job)
  }

  private func readReady(at position: QueuePosition) -> Step {
    .readReady(position, count: pages[position]?.size ?? max(1, count - chosen))
  }

  private mutating func firstDeferred(at position: QueuePosition, in jobs: ClaimableJobs) -> Found {
    var first: QueuedCandidate?
    for origin in openOrigins(jobs) {
      switch jobs.deferred.first(of: origin, at: position) {
      case .none: break
      case .unknown: return .step(.readDeferred(origin: origin, position))
      case .job(let job): if job.rank < first?.rank ?? .max { first = job }
      }
    }
    return first.map(Found.job) ?? .none
  }

  private mutating func due(_ job: QueuedCandidate) -> Found {
    if QueueOrder.isDue(job.notBefore, at: moment, longestWait: longestWait) { return .job(job) }
    deferrable -= 1
    return .step(.postpone(job))
  }
}

/// Reading ahead.
extension ClaimChooser {
  /// Predicts how many jobs of each position the claim will choose, so that a store can read them all at once and
  /// few in vain. Assumes that every job can be claimed.
  /// - Parameter available: The number of ready jobs of each position; nil if it is unknown.
  package func prediction(
    of count: Int, from jobs: ClaimableJobs, available: [QueuePosition: Int?]
  ) -> [QueuePosition: Int] {
    if available.count == 1 { return available.mapValues { _ in count } }
    var (trial, jobs, left) = (self, jobs, available)
    trial.count = min(count, Self.maxPredicted)
    trial.room = .unlimited
    var wanted: [QueuePosition: Int] = [:]
    while true {
      switch trial.next(from: &jobs) {
      case .readReady(let position, _):
        guard let number = left[position], number ?? 1 > 0 else {
          trial.add([], at: position, hasMore: false)
          continue
        }
        left[position] = .some(number.map { $0 - 1 })
        // Only the first job's age is known.
        let job = QueuedCandidate(
          number: 0, id: trial.pages[position] == nil ? heads[position]?.id : nil,
          position: position, rank: 0, notBefore: nil, origin: nil)
        trial.add([job], at: position, hasMore: true)
      case .claim(let job):
        wanted[job.position, default: 0] += 1
        jobs.ready.addLoading(1, of: job.position.queue)
      case .deferJob, .postpone, .readDeferred: continue
      case .end:
        // Read one job more, because the job behind the chosen ones may be the oldest of all.
        let steps = trial.chosen
        return wanted.mapValues { ($0 * count + steps - 1) / steps + 1 }
      }
    }
  }
}

/// Creates the numbers of claims. The upper 32 bits are the instance number, which the store syncs to disk
/// before the instance claims a job. A claim that a power cut undid therefore never shares its number with a
/// later one. No version of a job is shown twice (``Job/start(at:by:)``).
package enum ClaimNumbers {
  /// Returns the number of the instance's next claim after `count` others.
  package static func number(_ count: Int64, of instance: Instance) -> Int64 {
    instance.number << 32 | count
  }

  /// Returns the instance that made the claim.
  package static func instance(of claim: Int64) -> Instance { Instance(number: claim >> 32) }
}
