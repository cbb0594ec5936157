package import Jobs
internal import Logging

/// A request to a thread that writes.
enum StoreRequest: Sendable {
  /// New jobs, which are all stored or none. Merged with others.
  case submit(SubmitRequest)
  /// A change of jobs. It is merged with other changes and with reservations, because a transaction
  /// costs more than the statements in it. A job whose image is too large for the database needs
  /// one change and one reservation.
  case change(ChangeRequest)
  /// A reservation of an image.
  case reserve(ReserveRequest)
  /// A variant to store, and a job to delete. Each is merged with others of its kind: a job may
  /// have many variants, and a purge deletes many jobs.
  case keep(SaveVariantRequest)
  case remove(RemoveRequest)
  /// Any other work.
  case task(Task)

  /// Any other work.
  struct Task: Sendable {
    var isSynced: Bool
    /// Whether it adds records.
    var isAdding: Bool
    /// Whether it can share a transaction with others.
    var isMerged: Bool
    var body: SQLJobStore.Body
  }

  /// The kind shared by changes and reservations. These are the most frequent requests, so a
  /// minimum interval is kept between their transactions.
  static let changes = 0

  var kind: Int? {
    switch self {
    case .change, .reserve: Self.changes
    case .keep: 1
    case .remove: 2
    case .submit: 3
    case .task(let task): task.isMerged ? 4 : nil
    }
  }

  var isSynced: Bool {
    switch self {
    case .submit, .change, .keep, .remove: true
    // If an unsynced reservation is lost, its files are removed by the next sweep.
    case .reserve(let request): request.isNamed
    case .task(let task): task.isSynced
    }
  }

  /// Whether it adds records, so that it is rejected while the disk is almost full.
  var isAdding: Bool {
    switch self {
    case .submit: true
    case .task(let task): task.isAdding
    case .change, .reserve, .keep, .remove: false
    }
  }
}

/// The result of a request.
struct StoreAnswer: Sendable {
  /// For a change: the result of each of its jobs.
  var jobs: [Result<Job?, StoreError>] = []
  /// Whether a job was left unchanged because the queue is full.
  var isQueueFull = false
  /// Evicted images, whose files are to be removed.
  var evicted: [ImageName] = []
  /// Jobs with an equal request that were claimed together with the change.
  var claimedEqual: [ClaimedJob] = []
  /// Whether jobs that waited for these ones became ready.
  var hasReadyJobs = false
  /// The result of a reservation.
  var reservation: Reservation?
  /// The result of a request to delete a job.
  var removal = Removal.unknown
  /// The result of a submission.
  var submission: SubmitAnswer?
}

/// A change of jobs, and the writes that belong to it.
struct ChangeRequest: Sendable {
  var targets: [(id: JobID, claim: Claim?)]
  var change: @Sendable (inout Job) -> Bool
  /// A cache entry to store.
  var entry: CacheRow?
  /// The rest of a completion; `nil` if the change is no completion.
  var completion: Completion?
  /// Returns new claim numbers for jobs with an equal request; `nil` if no such jobs are to be
  /// claimed.
  var newClaimNumbers: (@Sendable (Int) -> [Int64])?
  /// The limits for finished jobs that the change queues again; `nil` if there are none.
  var queueLimits: QueueLimits?

  /// A small image to store in the database, unless it is stored already.
  var image: EmbeddedImage? { completion?.image }
}

/// A request to delete a job.
struct RemoveRequest: Sendable {
  var id: JobID
  /// Decides by the job's current state whether it is deleted.
  var condition: @Sendable (Job) -> Bool
}

extension SQLJobStore {
  /// Changes a job, in one transaction together with other queued requests. `change` runs on the
  /// writing thread, so it must be quick.
  package func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job? {
    let request = ChangeRequest(targets: [(id, claim)], change: change)
    let answer = try await writing.perform(.change(request))
    if answer.hasReadyJobs { wakeAllInstances() }
    return try answer.jobs.first?.get()
  }

  /// Changes a job in the same way. The same transaction checks the counters for a free slot in the
  /// queue.
  package func update(
    _ id: JobID, within capacity: QueueCapacity,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> UpdateOutcome {
    var request = ChangeRequest(targets: [(id, nil)], change: change)
    request.queueLimits = queueRoom(within: capacity)
    let answer = try await writing.perform(.change(request))
    if answer.hasReadyJobs { wakeAllInstances() }
    guard !answer.isQueueFull else { return .queueFull }
    guard let job = try answer.jobs.first?.get() else { return .unknown }
    return .updated(job)
  }

  func queueRoom(within capacity: QueueCapacity) -> QueueLimits {
    QueueLimits(capacity: capacity, refusals: refusals, refusedLines: refusedLines)
  }

  /// Wakes every instance, including this one, to claim jobs.
  func wakeAllInstances() { publish(.queued, from: .none) }

  /// Changes the jobs one after the other. A job that can't be changed because its record is
  /// unreadable is logged and reported as lost.
  package func complete(_ completion: Completion) async throws(StoreError) -> Completed {
    var request = ChangeRequest(
      targets: completion.claims.map { ($0.job, $0) }, change: completion.change,
      completion: completion)
    do {
      request.entry = try completion.entry.map { try CacheRow($0, limit: completion.cacheLimit) }
    } catch {
      throw StoreError(cause: error)
    }
    let attempt = ClaimAttempt(unknownClaims)
    if completion.claimsEqual, isShared {
      request.newClaimNumbers = { [self] in attempt.record(numbers(completion.instance, $0)) }
    }
    let answer: StoreAnswer
    do throws(StoreError) { answer = try await writing.perform(.change(request)) } catch {
      attempt.fail()
      throw error
    }
    let isAnyLeft = attempt.succeed(with: answer.claimedEqual.map(\.claim.number))
    if answer.hasReadyJobs || isAnyLeft { wakeAllInstances() }
    let jobs = zip(completion.claims, answer.jobs).map { claim, result -> Job? in
      do throws(StoreError) { return try result.get() } catch {
        log.error(
          "failed to complete a job", metadata: ["job": "\(claim.job)", "error": "\(error)"])
        return nil
      }
    }
    var completed = Completed(jobs: jobs, evicted: answer.evicted)
    completed.claimedEqual = answer.claimedEqual
    return completed
  }

  /// Deletes the job, its tags and its references to images, in one transaction together with other
  /// deletions.
  package func remove(
    _ id: JobID, if condition: @escaping @Sendable (Job) -> Bool
  ) async throws(StoreError) -> Removal {
    let request = RemoveRequest(id: id, condition: condition)
    let answer = try await writing.perform(.remove(request))
    if answer.hasReadyJobs { wakeAllInstances() }
    return answer.removal
  }

  /// Deletes expired jobs in one transaction, the earliest first. Jobs that another transaction is
  /// changing are skipped until the next call.
  package func expire(_ count: Int) async throws(StoreError) -> [JobID] {
    try await write { [log] transaction in
      let rows = try transaction.execute(
        Transaction.expired, [transaction.moment, .int(Int64(count))])
      let defaults = try transaction.defaults(of: rows)
      let jobs = rows.all.compactMap { row in
        do { return try JobRow(rows, row, defaults) } catch {
          log.error("skipping unreadable job", metadata: ["error": "\(error)"])
          return nil
        }
      }
      try transaction.delete(jobs)
      try transaction.deleteMessages(of: jobs.map(\.id), includingUnsent: false)
      return jobs.map(\.id)
    }
  }
}

extension Transaction {
  /// The subquery computes the moment once per statement, so that the index can be searched by it.
  /// The condition on `phase` skips jobs with an unknown phase, which would otherwise be returned
  /// by every call. `+ 0` keeps `phase` out of the choice of an index.
  static let expired = """
    SELECT \(JobRow.columns) FROM jobs j WHERE j.expires_at <= (SELECT moment($1))
      AND j.phase + 0 BETWEEN 0 AND 4
    ORDER BY j.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
    """

  typealias StoreOutcomes = [Result<StoreAnswer, StoreError>]

  /// Performs requests in one transaction.
  func perform(
    _ requests: [StoreRequest], isRepeated: Bool, _ refusals: Refusals, _ refusedRecords: Refusals
  ) throws -> StoreOutcomes {
    var submissions: [(place: Int, request: SubmitRequest)] = []
    var changes: [(place: Int, request: ChangeRequest)] = []
    var reservations: [(place: Int, request: ReserveRequest)] = []
    var variants: [SaveVariantRequest] = []
    var removals: [(place: Int, request: RemoveRequest)] = []
    for (place, request) in requests.enumerated() {
      switch request {
      case .submit(let submission): submissions.append((place, submission))
      case .change(let change): changes.append((place, change))
      case .reserve(let reservation): reservations.append((place, reservation))
      case .keep(let variant): variants.append(variant)
      case .remove(let removal): removals.append((place, removal))
      case .task(let task): try task.body(self)
      }
    }
    var outcomes = requests.map { _ in StoreOutcomes.Element.success(StoreAnswer()) }
    if !submissions.isEmpty {
      let answers = try submit(
        submissions.map(\.request), isRepeated: isRepeated, refusals, refusedRecords)
      for (submission, answer) in zip(submissions, answers) {
        outcomes[submission.place] = answer.map { StoreAnswer(submission: $0) }
      }
    }
    let counts = !reservations.isEmpty || changes.contains { $0.request.completion != nil }
    let totals = counts ? try totals() : nil
    if !changes.isEmpty {
      let changed = try change(changes.map(\.request), totals, isRepeated: isRepeated)
      for (change, outcome) in zip(changes, changed) { outcomes[change.place] = outcome }
    }
    // Reservations follow the changes: every transaction locks jobs before images.
    if let totals, !reservations.isEmpty {
      let reserved = try reserve(reservations.map(\.request), totals)
      for (reservation, outcome) in zip(reservations, reserved) {
        outcomes[reservation.place] = outcome
      }
    }
    try saveVariants(variants)
    let removed = try remove(removals.map(\.request))
    for (removal, outcome) in zip(removals, removed) { outcomes[removal.place] = outcome }
    try removeCrowdedReferences()
    return outcomes
  }

  /// Deletes jobs with a fixed number of statements; an unreadable job fails alone.
  private func remove(_ requests: [RemoveRequest]) throws -> StoreOutcomes {
    let rows = try lockedJobs(Set(requests.map(\.id)))
    var gone: [JobID: JobRow] = [:]
    let removals = requests.map { request -> Result<Removal, StoreError> in
      do {
        guard gone[request.id] == nil, let row = try rows[request.id]?.get() else {
          return .success(.unknown)
        }
        let job = try row.job()
        guard request.condition(job) else { return .success(.kept(job)) }
        gone[request.id] = row
        return .success(.removed(job))
      } catch {
        return .failure(StoreError(cause: error))
      }
    }
    try delete(Array(gone.values))
    try deleteMessages(of: Array(gone.keys), includingUnsent: true)
    // Only the first answer reports that jobs became ready.
    var hasAwakened = readyCount > 0
    return removals.map { removal in
      removal.map { removal in
        defer { hasAwakened = false }
        return StoreAnswer(hasReadyJobs: hasAwakened, removal: removal)
      }
    }
  }

  /// - Parameter totals: not `nil` if any request is a completion.
  private func change(
    _ requests: [ChangeRequest], _ totals: Totals?, isRepeated: Bool
  ) throws -> StoreOutcomes {
    let completions = requests.compactMap(\.completion)
    var answers = requests.map { _ in StoreAnswer() }
    // The images' rows must be locked before it is known which of these images have to be written.
    // An image that existed when space was freed may have been evicted since, by another request or
    // another instance.
    let offered = Dictionary(
      requests.compactMap(\.image).map { ($0.digest.bytes, $0.content) }
    ) { first, _ in first }
    if let totals, !completions.isEmpty {
      var arriving: [[UInt8]: Int] = [:]
      for (index, request) in requests.enumerated() {
        answers[index].evicted = try freeSpace(for: request, &arriving, totals)
      }
    }
    var changes = try JobChanges(to: Set(requests.flatMap(\.targets).map(\.id)), in: self)
    for (index, request) in requests.enumerated() {
      try applyChange(request, &changes, isRepeated: isRepeated, &answers[index])
    }
    let entries = requests.compactMap(\.entry)
    // A cache entry is counted in its image's row. Two transactions that both held a shared lock on
    // the row would deadlock.
    let known = try lockForReferences(
      changes.begun.keys + entries.map(\.digest), toCount: !entries.isEmpty,
      owners: changes.owners)
    var begun = changes.begun
    for entry in entries
    where offered[entry.digest] != nil && known[entry.digest] != false && entry.bytes <= entry.limit
    {
      begun[entry.digest] = begun[entry.digest] ?? entry.bytes
    }
    let kept = CacheRow.latest(of: entries) { begun[$0] != nil || known[$0] == false }
    let new = try addImages(
      begun, known: known, offered: offered, owners: changes.owners, entries: kept)
    try changes.write()
    try continueWaitingJobs(requests, changes, &answers)
    try saveEntries(entries, storing: kept, counted: new)
    if let totals, !completions.isEmpty {
      let releasing = zip(requests, answers).filter(\.1.claimedEqual.isEmpty).compactMap {
        $0.0.completion?.releasing
      }
      try finish(completions, entries, totals, releasing, referredTo: Set(begun.keys))
    }
    try addDeletionCandidates(changes.dropped)
    answers[0].hasReadyJobs = readyCount > 0
    return answers.map { .success($0) }
  }

  private func applyChange(
    _ request: ChangeRequest, _ changes: inout JobChanges, isRepeated: Bool,
    _ answer: inout StoreAnswer
  ) throws {
    for (id, claim) in request.targets {
      do {
        let job = try changes.change(
          id, under: claim, isRepeated: isRepeated || request.completion?.isRepeated == true,
          within: request.queueLimits, by: request.change)
        answer.jobs.append(.success(job))
      } catch let error as StoreError {
        answer.jobs.append(.failure(error))
      } catch is QueueFull {
        answer.isQueueFull = true
        answer.jobs.append(.success(nil))
      }
    }
  }

  /// Continues the jobs that waited for a load that just ended: claims them for this instance or
  /// makes them ready.
  private func continueWaitingJobs(
    _ requests: [ChangeRequest], _ changes: JobChanges, _ answers: inout [StoreAnswer]
  ) throws {
    let passed = changes.endedRequests()
    guard !passed.isEmpty || requests.contains(where: { $0.newClaimNumbers != nil }) else { return }
    // Usually there are none, and one query finds that out.
    let asked = try requestsStillNeeded(
      changes.endedRequests(requests.flatMap(\.targets).map(\.id)))
    guard !asked.isEmpty else { return }
    for (index, request) in requests.enumerated() {
      guard let completion = request.completion, let numbers = request.newClaimNumbers else {
        continue
      }
      let ended = zip(request.targets, answers[index].jobs).filter { (try? $1.get()) != nil }
      answers[index].claimedEqual = try claimEqual(
        to: changes.endedRequests(ended.map(\.0.id)).intersection(asked), except: changes.requeued,
        atMost: Self.maxClaimedEqual, for: completion.instance, numbers)
    }
    try continueLoads(passed.intersection(asked))
  }

  /// The maximum number of equal jobs that finish together with a load; further ones are claimed
  /// normally.
  private static let maxClaimedEqual = 500

  /// Frees space for a small image that is stored in the database, unless it is stored already. The
  /// image is stored even if freeing the space needs several transactions; the following ones
  /// continue.
  /// - Parameter arriving: the sizes of such images in this transaction, by digest. Some may be stored already.
  /// - Returns: the evicted images.
  private func freeSpace(
    for request: ChangeRequest, _ arriving: inout [[UInt8]: Int], _ totals: Totals
  ) throws -> [ImageName] {
    guard let image = request.image, let completion = request.completion,
      arriving[image.digest.bytes] == nil
    else { return [] }
    let digest = image.digest.bytes
    let coming = arriving.values.reduce(image.content.count, +)
    guard totals[.imageBytes] + coming > completion.imageLimit else {
      arriving[digest] = image.content.count
      return []
    }
    let known = try execute("SELECT leaving FROM images WHERE digest = $1", [.bytes(digest)])
    guard known.isEmpty || known.bool(0, 0) else { return [] }
    arriving[digest] = image.content.count
    guard try pinnedBytes(with: digest) + coming <= completion.imageLimit else {
      throw StoreError.full
    }
    return try evictImages(
      downTo: completion.imageLimit - coming, atLeast: image.content.count, totals,
      for: completion.instance)
  }

  /// Trims the cache and releases reservations after the jobs and entries were written.
  private func finish(
    _ completions: [Completion], _ entries: [CacheRow], _ totals: Totals, _ releasing: [JobID],
    referredTo begun: Set<[UInt8]>
  ) throws {
    for completion in completions where totals.cacheSize > completion.cacheLimit {
      let own = completion.entry?.id ?? entries.last?.id
      try trimCache(
        to: completion.cacheLimit, sparing: own, totals, lastUse: completion.lastUse)
      try trimCache(to: completion.cacheLimit, totals, lastUse: completion.lastUse)
    }
    let released = try deleteReservations(of: releasing)
    try addDeletionCandidates(released.subtracting(begun))
  }
}

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
    var held =
      try self.held
      ?? HeldSlots(in: transaction, room, of: Set(rows.values.compactMap { try? $0.get().owner }))
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

  init(in transaction: Transaction, _ room: QueueLimits, of owners: Set<[UInt8]>) throws {
    let totals = try transaction.totals(of: owners)
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
