internal import Jobs

/// Changes to jobs, made in memory one after the other and then written by a few statements, however many they are.
///
/// A change is made to the job as it is at that moment, as the rows are locked. What it means for images is the caller's
/// to do, before the rows are written.
struct JobChanges {
  private let transaction: Transaction
  private var rows: [JobID: Result<JobRow, StoreError>]
  private var changed: [JobID: Changed] = [:]
  /// Images that rows come to refer to, with their sizes.
  private(set) var begun: [[UInt8]: Int] = [:]
  /// Whose rows these are: see ``Transaction/Image/owner``.
  private(set) var owners: [[UInt8]: [UInt8]] = [:]
  /// Images that rows cease to refer to.
  private(set) var dropped: Set<[UInt8]> = []
  /// What is to be told of ends.
  private var messages: [WebhookMessage] = []
  /// Looked up where a finished job is queued.
  private var held: HeldPlaces?

  private struct Changed {
    let old: JobRow
    var new: JobRow
    var move = QueueMove.none
    /// Nil: as they were.
    var tags: [String]?
  }

  /// Locks the jobs.
  init(to ids: Set<JobID>, in transaction: Transaction) throws {
    self.transaction = transaction
    rows = try transaction.lockedJobs(ids)
  }

  /// Changes a job.
  /// - Parameters:
  ///   - claim: nil: whoever holds it.
  ///   - isRepeated: whether this very change may have been committed already: then the job that its claim brought to
  ///     its phase is as the change left it.
  ///   - room: what it is held to where it queues a finished job; nil: nothing.
  /// - Returns: the job as it then is; nil when there is none or the claim no longer holds.
  /// - Throws: ``QueueFull`` where there is no place for it: it is as it was.
  mutating func change(
    _ id: JobID, under claim: Claim?, isRepeated: Bool = false, within room: QueueRoom? = nil,
    by body: (inout Job) -> Bool
  ) throws -> Job? {
    guard let row = try rows[id]?.get() else { return nil }
    if let claim, row.heldBy != claim {
      return isRepeated && row.lastClaim == claim.number ? try row.job() : nil
    }
    let before = try row.job()
    var after = before
    guard body(&after), after != before else { return before }
    var new = row
    try new.update(to: after)
    if let room, before.phase.isFinished { try takePlaces(for: new, in: room) }
    if after.phase != before.phase { new.lastClaim = claim?.number }
    note(new, after: row, QueueMove(from: before, to: after), before, after)
    if let message = WebhookMessage(endOf: after, after: before.phase) { messages.append(message) }
    return after
  }

  private mutating func takePlaces(for row: JobRow, in room: QueueRoom) throws {
    guard row.phase == .queued, let places = row.queue?.places else { return }
    var held = try self.held ?? HeldPlaces(in: transaction, room)
    let areThere = held.take(places, for: row, in: room)
    self.held = held
    if !areThere { throw QueueFull() }
  }

  private mutating func note(
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

  /// Writes what has changed.
  func write() throws {
    let changes = changed.values.sorted { $0.new.id < $1.new.id }
    guard !changes.isEmpty else { return }
    try writeJobs(changes.map(\.new))
    let ended = changes.filter { $0.old.queue != nil && $0.new.queue == nil }
    if !ended.isEmpty {
      try transaction.add(
        "DELETE FROM queue WHERE id = ANY ($1)", [.ids(ended.map(\.new.id))])
    }
    try writePlaces(changes.filter { $0.old.queue != nil && $0.new.queue != nil })
    try transaction.enqueue(changes.filter { $0.old.queue == nil }.map(\.new))
    let retagged = changes.compactMap { change in
      change.tags.map { (row: change.new, tags: $0) }
    }
    try transaction.removeTags(of: retagged.map(\.row.id))
    try transaction.addTags(retagged)
    try transaction.tell(messages)
    for change in changes {
      transaction.count(change.old, -1)
      transaction.count(change.new, 1)
      transaction.batches.move(from: change.old, to: change.new)
    }
  }

  /// What jobs asked for that were loading and are no more, or have their image.
  /// - Parameter ids: of which jobs; nil: all, of those that stood for a transfer.
  func left(_ ids: [JobID]? = nil) -> Set<[UInt8]> {
    let left = (ids.map { $0.compactMap { changed[$0] } } ?? Array(changed.values)).filter {
      $0.old.queue?.state == .loading
        && ($0.new.queue?.state != .loading || $0.new.queue?.request == nil)
        && $0.old.queue?.origin != nil && (ids != nil || $0.old.queue?.leads == true)
    }
    return Set(left.compactMap { $0.old.queue?.request })
  }

  /// Jobs that were loading and wait for another turn.
  var queuedAgain: [JobID] {
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
        .bools(rows.map(\.isLow)), .ints(rows.map(\.lastClaim)),
        .byteStrings(rows.map(\.record)), .byteStrings(rows.map(\.code)),
      ])
  }

  /// Ahead of every rank ever given is ahead of those at that level.
  private func writePlaces(_ changes: [Changed]) throws {
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
        .ints(places.map(\.queue.state.rawValue)), .ints(places.map { Int64($0.queue.places) }),
        .ints(places.map(\.queue.notBefore)), .byteStrings(places.map(\.queue.origin)),
        .byteStrings(places.map(\.queue.request)), .ints(places.map(\.queue.instance)),
        .ints(places.map(\.queue.claim)), .ints(places.map { $0.move.code }),
      ])
  }
}

/// What jobs that are queued again are held to, as new ones are.
struct QueueRoom: Sendable {
  let capacity: QueueCapacity
  /// Who was refused lately: single jobs, and lines.
  let refusals, refusedLines: Refusals
}

/// There is no place for a job that was to be queued again.
struct QueueFull: Error {}

/// Whose jobs have how many places, with those that a transaction has taken so far.
private struct HeldPlaces {
  private var places, lines: SharedCapacity<[UInt8]>
  private let moment: Timestamp

  init(in transaction: Transaction, _ room: QueueRoom) throws {
    let totals = try transaction.totals()
    places = room.refusals.queue(holding: totals.places)
    lines = room.refusedLines.queue(holding: totals.lines)
    moment = try transaction.clock()
  }

  /// - Returns: false where there are not that many.
  mutating func take(_ count: Int, for row: JobRow, in room: QueueRoom) -> Bool {
    if row.batch == nil {
      room.refusals.take(count, for: row.owner, of: &places, within: room.capacity, at: moment)
    } else {
      room.refusedLines.take(count, for: row.owner, of: &lines, within: room.capacity, at: moment)
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
