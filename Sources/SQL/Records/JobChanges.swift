internal import Jobs

/// Changes to jobs, made in memory one after the other and then written with a fixed number of
/// statements.
///
/// The rows are locked first, so each change sees the current job. The caller updates the
/// references to images before it writes the rows.
struct JobChanges {
  private let transaction: Transaction
  private var rows: [JobID: Result<JobRow, StoreError>]
  private var changed: [JobID: Changed] = [:]
  /// Images that rows start to refer to, with their sizes.
  private(set) var begun: [[UInt8]: Int] = [:]
  /// The owners of the jobs that refer to them; see ``Transaction/Image/owner``.
  private(set) var owners: [[UInt8]: [UInt8]] = [:]
  /// Images that rows no longer refer to.
  private(set) var dropped: Set<[UInt8]> = []
  /// Webhook messages of finished jobs.
  private var messages: [WebhookMessage] = []
  /// Loaded when a finished job is queued again.
  private var held: HeldSlots?

  private struct Changed {
    let old: JobRow
    var new: JobRow
    var move = QueueMove.none
    /// New tags; `nil` if unchanged.
    var tags: [String]?
  }

  /// Locks the jobs' rows.
  init(to ids: Set<JobID>, in transaction: Transaction) throws {
    self.transaction = transaction
    rows = try transaction.lockedJobs(ids)
  }

  /// Changes a job.
  /// - Parameters:
  ///   - claim: the claim that must hold the job; `nil` for any holder.
  ///   - isRepeated: whether this same change may have been committed already. Then a job that its
  ///     claim moved to its phase is returned as the change left it.
  ///   - room: the capacity to check if the change queues a finished job; `nil` for no check.
  /// - Returns: the job after the change; `nil` if it does not exist or the claim no longer holds.
  /// - Throws: ``QueueFull`` if the queue has no slot; the job is unchanged.
  mutating func change(
    _ id: JobID, under claim: Claim?, isRepeated: Bool = false, within room: QueueLimits? = nil,
    by body: (inout Job) -> Bool
  ) throws -> Job? {
    guard let row = try rows[id]?.get() else { return nil }
    let before = try row.job()
    var after = before
    if let claim, row.heldBy != claim, !skipsFencing(of: &after) {
      return isRepeated && row.lastClaim == claim.number ? before : nil
    }
    guard body(&after), after != before else { return before }
    if row.isBatchStopped {
      after.discardResult(after: before)
    } else if let batch = row.batch, after.isResultInBatch(after: before) {
      transaction.batches.recordResult(in: batch)
    }
    var new = row
    try new.update(to: after)
    if let room, before.phase.isFinished { try acquireSlots(for: new, in: room) }
    if after.phase != before.phase { new.lastClaim = claim?.number }
    recordChange(new, after: row, QueueMove(from: before, to: after), before, after)
    if let message = WebhookMessage(endOf: after, after: before.phase) { messages.append(message) }
    return after
  }

  /// Whether a test has planted this fault. The job continues as if it had not been cancelled.
  private func skipsFencing(of job: inout Job) -> Bool {
    #if DEBUG
      guard PlantedFault.skippedFencing.isPlanted, job.phase == .cancelled else { return false }
      job.forgetEnd()
      return true
    #else
      return false
    #endif
  }

  private mutating func acquireSlots(for row: JobRow, in room: QueueLimits) throws {
    guard row.phase == .queued, let places = row.queue?.slots else { return }
    var held = try self.held ?? HeldSlots(in: transaction, room)
    let areThere = held.acquire(places, for: row, in: room)
    self.held = held
    if !areThere { throw QueueFull() }
  }

  private mutating func recordChange(
    _ new: JobRow, after row: JobRow, _ move: QueueMove, _ before: Job, _ after: Job
  ) {
    rows[row.id] = .success(new)
    var change = changed[row.id] ?? Changed(old: row, new: new)
    change.new = new
    if move != .none { change.move = move }
    if !before.tags.areSameTags(as: after.tags) { change.tags = after.tags }
    changed[row.id] = change
    if let old = row.image, old != new.image { dropped.insert(old) }
    if let old = row.source, old != new.source { dropped.insert(old) }
    if let image = after.keptImage, let digest = new.image, digest != row.image {
      begun[digest] = image.keptBytes
      owners[digest] = Transaction.Image.owner(owners[digest], and: row.owner)
    }
  }

  /// Writes all changes.
  func write() throws {
    let changes = changed.values.sorted { $0.new.id < $1.new.id }
    guard !changes.isEmpty else { return }
    try writeJobs(changes.map(\.new))
    let ended = changes.filter { $0.old.queue != nil && $0.new.queue == nil }
    if !ended.isEmpty {
      try transaction.add(
        "DELETE FROM queue WHERE id = ANY ($1)", [.ids(ended.map(\.new.id))])
    }
    try writeQueueRows(changes.filter { $0.old.queue != nil && $0.new.queue != nil })
    try transaction.enqueue(changes.filter { $0.old.queue == nil }.map(\.new))
    let retagged = changes.compactMap { change in
      change.tags.map { (row: change.new, tags: $0) }
    }
    try transaction.removeTags(of: retagged.map(\.row.id))
    try transaction.addTags(retagged)
    try transaction.addMessages(messages)
    for change in changes {
      transaction.updateCounters(change.old, -1)
      transaction.updateCounters(change.new, 1)
      transaction.batches.recordChange(from: change.old, to: change.new)
    }
  }

  /// The requests of jobs that stopped loading or have their image now.
  /// - Parameter ids: the jobs to consider; `nil` for all that led a load.
  func endedRequests(_ ids: [JobID]? = nil) -> Set<[UInt8]> {
    let left = (ids.map { $0.compactMap { changed[$0] } } ?? Array(changed.values)).filter {
      $0.old.queue?.state == .loading
        && ($0.new.queue?.state != .loading || $0.new.queue?.request == nil)
        && $0.old.queue?.origin != nil && (ids != nil || $0.old.queue?.isLeading == true)
    }
    return Set(left.compactMap { $0.old.queue?.request })
  }

  /// Jobs that were loading and are queued again.
  var requeued: [JobID] {
    changed.values.filter { change in
      guard let queue = change.new.queue else { return false }
      return change.old.queue?.state == .loading && queue.state != .loading
    }.map(\.new.id)
  }

  private func writeJobs(_ rows: [JobRow]) throws {
    try transaction.add(
      """
      UPDATE jobs SET phase = n.phase, finished_at = n.finished_at, expires_at = n.expires_at, image = n.image,
        source = n.source, low = n.low, last_claim = n.last_claim, record = n.record, code = n.code
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        AS n (id, phase, finished_at, expires_at, image, source, low, last_claim, record, code)
      WHERE jobs.id = n.id
      """,
      [
        .ids(rows.map(\.id)), .ints(rows.map { Int64($0.finished?.code ?? 0) }),
        .ints(rows.map(\.finishedAt)), .ints(rows.map(\.expiresAt)),
        .byteStrings(rows.map(\.image)), .byteStrings(rows.map(\.source)),
        .bools(rows.map(\.hasLowDataImage)), .ints(rows.map(\.lastClaim)),
        .byteStrings(rows.map(\.record)), .byteStrings(rows.map(\.code)),
      ])
  }

  /// Writes the queue rows. A rank below every rank so far moves a job to the front of its
  /// priority.
  private func writeQueueRows(_ changes: [Changed]) throws {
    let places = changes.compactMap { change in
      change.new.queue.map { (id: change.new.id, queue: $0, move: change.move) }
    }
    guard !places.isEmpty else { return }
    try transaction.add(
      """
      UPDATE queue SET priority = n.priority, state = n.state, places = n.places, not_before = n.not_before,
        origin = n.origin, request = n.request, instance = n.instance, claim = n.claim, claimed_at = NULL, leads = leads AND n.state = 4 AND n.request IS NOT NULL,
        rank = CASE n.move WHEN 1 THEN nextval('ranks') WHEN 2 THEN -nextval('ranks_ahead') ELSE rank END
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        AS n (id, priority, state, places, not_before, origin, request, instance, claim, move)
      WHERE queue.id = n.id
      """,
      [
        .ids(places.map(\.id)), .ints(places.map { Int64($0.queue.priority) }),
        .ints(places.map(\.queue.state.rawValue)), .ints(places.map { Int64($0.queue.slots) }),
        .ints(places.map(\.queue.notBefore)), .byteStrings(places.map(\.queue.origin)),
        .byteStrings(places.map(\.queue.request)), .ints(places.map(\.queue.instance)),
        .ints(places.map(\.queue.claim)), .ints(places.map { $0.move.code }),
      ])
  }
}

/// The capacity limits for jobs that are queued again; new jobs have the same limits.
struct QueueLimits: Sendable {
  let capacity: QueueCapacity
  /// Owners that were refused recently, for single jobs and for lines of batches.
  let refusals, refusedLines: Refusals
}

/// The queue has no slot for a job that was to be queued again.
struct QueueFull: Error {}

/// The queue slots of each owner, including those that this transaction has added.
private struct HeldSlots {
  private var places, lines: FairShare<[UInt8]>
  private let moment: Timestamp

  init(in transaction: Transaction, _ room: QueueLimits) throws {
    let totals = try transaction.totals()
    places = room.refusals.queue(holding: totals.places)
    lines = room.refusedLines.queue(holding: totals.lines)
    moment = try transaction.clock()
  }

  /// - Returns: `false` if there are not enough free slots.
  mutating func acquire(_ count: Int, for row: JobRow, in room: QueueLimits) -> Bool {
    if row.batch == nil {
      room.refusals.acquire(count, for: row.owner, of: &places, within: room.capacity, at: moment)
    } else {
      room.refusedLines.acquire(
        count, for: row.owner, of: &lines, within: room.capacity, at: moment)
    }
  }
}

extension QueueMove {
  fileprivate var code: Int64 {
    switch self {
    case .none: 0
    case .toTheEnd: 1
    case .ahead: 2
    }
  }
}
