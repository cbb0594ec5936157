public import Jobs
internal import Logging

/// What the thread that writes is asked for.
enum WriteRequest: Sendable {
  /// A change of jobs. It is merged with others and with reservations: of images too large for the database, each job has
  /// one of both, and the transaction costs more than what is done in it.
  case change(ChangeRequest)
  /// A reservation of an image.
  case reserve(ReserveRequest)
  /// A variant to keep, and a job to forget. Each is merged with its like: a job may have many variants, and who purges has
  /// many jobs.
  case keep(KeepRequest)
  case remove(RemoveRequest)
  /// Anything else, in a transaction of its own.
  case task(isSynced: Bool, PostgresJobStore.Body)

  /// The kind of changes and reservations, whose transactions begin some time apart: nothing comes as often.
  static let changes = 0

  var kind: Int? {
    switch self {
    case .change, .reserve: Self.changes
    case .keep: 1
    case .remove: 2
    case .task: nil
    }
  }

  var isSynced: Bool {
    switch self {
    case .change, .keep, .remove: true
    // Files without it are swept one day.
    case .reserve(let request): request.isNamed
    case .task(let isSynced, _): isSynced
    }
  }
}

/// What became of it.
struct WriteAnswer: Sendable {
  /// Of a change, for each of its jobs.
  var jobs: [Result<Job?, StoreError>] = []
  /// Whether one of them was left out of it, as the queue has no place for that one.
  var isQueueFull = false
  /// Images that gave way and whose files are to be removed.
  var evicted: [ImageName] = []
  /// Jobs that were claimed, as they ask the same.
  var gathered: [ClaimedJob] = []
  /// Whether jobs got their turn that waited for these.
  var hasAwakened = false
  /// Of a reservation.
  var reservation: Reservation?
  /// Of a job that was to be forgotten.
  var removal = Removal.unknown
}

/// A change of jobs, and what goes with it.
struct ChangeRequest: Sendable {
  var targets: [(id: JobID, claim: Claim?)]
  var change: @Sendable (inout Job) -> Bool
  /// An entry of the cache to keep.
  var entry: CacheRow?
  /// Everything else of a completion; nil for a change that is none.
  var completion: Completion?
  /// Gives numbers for the claims of jobs that are to be gathered; nil: none are.
  var gathering: (@Sendable (Int) -> [Int64])?
  /// What finished jobs are held to that it queues; nil: nothing.
  var room: QueueRoom?

  /// An image that is to be taken in, where it isn't kept already.
  var image: EmbeddedImage? { completion?.image }
}

/// A job that is to be forgotten.
struct RemoveRequest: Sendable {
  var id: JobID
  /// Whether it is, as it then is.
  var condition: @Sendable (Job) -> Bool
}

extension PostgresJobStore {
  /// Changes a job, with whatever else is changed at that time; `change` runs on the thread that writes, so it must be
  /// quick.
  public func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job? {
    let request = ChangeRequest(targets: [(id, claim)], change: change)
    let answer = try await writing.perform(.change(request))
    if answer.hasAwakened { wakeAll() }
    return try answer.jobs.first?.get()
  }

  /// Changes a job in the same way; the sums of what is held tell in that transaction whether there is a place for it.
  public func update(
    _ id: JobID, within capacity: QueueCapacity,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> UpdateOutcome {
    var request = ChangeRequest(targets: [(id, nil)], change: change)
    request.room = queueRoom(within: capacity)
    let answer = try await writing.perform(.change(request))
    if answer.hasAwakened { wakeAll() }
    guard !answer.isQueueFull else { return .queueFull }
    guard let job = try answer.jobs.first?.get() else { return .unknown }
    return .updated(job)
  }

  func queueRoom(within capacity: QueueCapacity) -> QueueRoom {
    QueueRoom(capacity: capacity, refusals: refusals, refusedLines: refusedLines)
  }

  /// Has every instance look for jobs, this process's too.
  func wakeAll() { tell(.queued, from: .none) }

  /// Changes the jobs one after the other; one that can't be changed, as its record can't be read, is logged and counts
  /// as lost.
  public func complete(_ completion: Completion) async throws(StoreError) -> Completed {
    var request = ChangeRequest(
      targets: completion.claims.map { ($0.job, $0) }, change: completion.change,
      completion: completion)
    do {
      request.entry = try completion.entry.map { try CacheRow($0, limit: completion.cacheLimit) }
    } catch {
      throw StoreError(cause: error)
    }
    let attempt = ClaimAttempt(unknownClaims)
    if completion.gathers, isShared {
      request.gathering = { [self] in attempt.note(numbers(completion.instance, $0)) }
    }
    let answer: WriteAnswer
    do throws(StoreError) { answer = try await writing.perform(.change(request)) } catch {
      attempt.fail()
      throw error
    }
    let isAnyLeft = attempt.succeed(with: answer.gathered.map(\.claim.number))
    if answer.hasAwakened || isAnyLeft { wakeAll() }
    let jobs = zip(completion.claims, answer.jobs).map { claim, result -> Job? in
      do throws(StoreError) { return try result.get() } catch {
        log.error(
          "a job can't be settled", metadata: ["job": "\(claim.job)", "error": "\(error)"])
        return nil
      }
    }
    var completed = Completed(jobs: jobs, evicted: answer.evicted)
    completed.gathered = answer.gathered
    return completed
  }

  /// Forgets the job, its tags and its hold on images, in one transaction with whatever else is forgotten at that time.
  public func remove(
    _ id: JobID, if condition: @escaping @Sendable (Job) -> Bool
  ) async throws(StoreError) -> Removal {
    let request = RemoveRequest(id: id, condition: condition)
    let answer = try await writing.perform(.remove(request))
    if answer.hasAwakened { wakeAll() }
    return answer.removal
  }

  /// Forgets jobs whose time has come, the earliest first, in one transaction; those that another one is just changing
  /// come the next time.
  public func expire(_ count: Int) async throws(StoreError) -> [JobID] {
    try await write { [log] transaction in
      let rows = try transaction.execute(
        Transaction.expired, [transaction.moment, .int(Int64(count))])
      let defaults = try transaction.defaults(of: rows)
      let jobs = rows.all.compactMap { row in
        do { return try JobRow(rows, row, defaults) } catch {
          log.error("a job is passed over", metadata: ["error": "\(error)"])
          return nil
        }
      }
      try transaction.delete(jobs)
      try transaction.forgetMessages(of: jobs.map(\.id), waiting: false)
      return jobs.map(\.id)
    }
  }
}

extension Transaction {
  /// A moment that is asked for by itself is one for the whole statement: an index is searched by it, not looked through. A
  /// job of a phase that there is not would be among the first each time; `+ 0` keeps that out of the choice of an index.
  static let expired = """
    SELECT \(JobRow.columns) FROM jobs j WHERE j.expires_at <= (SELECT moment($1))
      AND j.phase + 0 BETWEEN 0 AND 4
    ORDER BY j.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
    """

  typealias WriteOutcomes = [Result<WriteAnswer, StoreError>]

  func write(_ requests: [WriteRequest], isRepeated: Bool) throws -> WriteOutcomes {
    var changes: [(place: Int, request: ChangeRequest)] = []
    var reservations: [(place: Int, request: ReserveRequest)] = []
    var variants: [KeepRequest] = []
    var removals: [(place: Int, request: RemoveRequest)] = []
    for (place, request) in requests.enumerated() {
      switch request {
      case .change(let change): changes.append((place, change))
      case .reserve(let reservation): reservations.append((place, reservation))
      case .keep(let variant): variants.append(variant)
      case .remove(let removal): removals.append((place, removal))
      case .task(_, let body): try body(self)
      }
    }
    var outcomes = requests.map { _ in WriteOutcomes.Element.success(WriteAnswer()) }
    let counts = !reservations.isEmpty || changes.contains { $0.request.completion != nil }
    let totals = counts ? try totalsOfImages() : nil
    if !changes.isEmpty {
      let changed = try change(changes.map(\.request), totals, isRepeated: isRepeated)
      for (change, outcome) in zip(changes, changed) { outcomes[change.place] = outcome }
    }
    // After the changes, as all lock jobs before images.
    if let totals, !reservations.isEmpty {
      let reserved = try reserve(reservations.map(\.request), totals)
      for (reservation, outcome) in zip(reservations, reserved) {
        outcomes[reservation.place] = outcome
      }
    }
    try keep(variants)
    let removed = try remove(removals.map(\.request))
    for (removal, outcome) in zip(removals, removed) { outcomes[removal.place] = outcome }
    try thinOut()
    return outcomes
  }

  /// Forgets jobs by a few statements, however many they are; one that can't be read fails alone.
  private func remove(_ requests: [RemoveRequest]) throws -> WriteOutcomes {
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
    try forgetMessages(of: Array(gone.keys), waiting: true)
    // The first one tells it for all.
    var hasAwakened = awakened > 0
    return removals.map { removal in
      removal.map { removal in
        defer { hasAwakened = false }
        return WriteAnswer(hasAwakened: hasAwakened, removal: removal)
      }
    }
  }

  /// - Parameter totals: there are some where any of them is a completion.
  private func change(
    _ requests: [ChangeRequest], _ totals: Totals?, isRepeated: Bool
  ) throws -> WriteOutcomes {
    let completions = requests.compactMap(\.completion)
    var answers = requests.map { _ in WriteAnswer() }
    // Which of these are needed is known once the images' rows are locked: what was kept when room was made may be gone
    // by then, as another of these requests or another instance had it give way.
    let offered = Dictionary(
      requests.compactMap(\.image).map { ($0.digest.bytes, $0.content) }
    ) { first, _ in first }
    if let totals, !completions.isEmpty {
      var arriving: [[UInt8]: Int] = [:]
      for (index, request) in requests.enumerated() {
        answers[index].evicted = try makeRoom(for: request, &arriving, totals)
      }
    }
    var changes = try JobChanges(to: Set(requests.flatMap(\.targets).map(\.id)), in: self)
    for (index, request) in requests.enumerated() {
      try make(request, &changes, isRepeated: isRepeated, &answers[index])
    }
    let entries = requests.compactMap(\.entry)
    // An entry is counted in its image's row. Two that had both locked it to share would wait for each other.
    let known = try sharedImages(
      changes.begun.keys + entries.map(\.digest), toCount: !entries.isEmpty,
      owners: changes.owners)
    var begun = changes.begun
    for entry in entries
    where offered[entry.digest] != nil && known[entry.digest] != false && entry.bytes <= entry.limit
    {
      begun[entry.digest] = begun[entry.digest] ?? entry.bytes
    }
    try begin(begun, known: known, offered: offered, owners: changes.owners)
    try changes.write()
    try handOn(requests, changes, &answers)
    try keep(entries) { begun[$0] != nil || known[$0] == false }
    if let totals, !completions.isEmpty {
      let releasing = zip(requests, answers).filter(\.1.gathered.isEmpty).compactMap {
        $0.0.completion?.releasing
      }
      try finish(completions, entries, totals, releasing, referredTo: Set(begun.keys))
    }
    try noteCandidates(changes.dropped)
    answers[0].hasAwakened = awakened > 0
    return answers.map { .success($0) }
  }

  private func make(
    _ request: ChangeRequest, _ changes: inout JobChanges, isRepeated: Bool,
    _ answer: inout WriteAnswer
  ) throws {
    for (id, claim) in request.targets {
      do {
        let job = try changes.change(
          id, under: claim, isRepeated: isRepeated || request.completion?.isRepeated == true,
          within: request.room, by: request.change)
        answer.jobs.append(.success(job))
      } catch let error as StoreError {
        answer.jobs.append(.failure(error))
      } catch is QueueFull {
        answer.isQueueFull = true
        answer.jobs.append(.success(nil))
      }
    }
  }

  /// Sees to those that ask the same as jobs which were loading and are no more.
  private func handOn(
    _ requests: [ChangeRequest], _ changes: JobChanges, _ answers: inout [WriteAnswer]
  ) throws {
    let passed = changes.left()
    guard !passed.isEmpty || requests.contains(where: { $0.gathering != nil }) else { return }
    // None, as a rule: one look tells.
    let asked = try stillAsked(changes.left(requests.flatMap(\.targets).map(\.id)))
    guard !asked.isEmpty else { return }
    for (index, request) in requests.enumerated() {
      guard let completion = request.completion, let numbers = request.gathering else { continue }
      let ended = zip(request.targets, answers[index].jobs).filter { (try? $1.get()) != nil }
      answers[index].gathered = try gather(
        changes.left(ended.map(\.0.id)).intersection(asked), sparing: changes.queuedAgain,
        atMost: Self.mostGathered, for: completion.instance, numbers)
    }
    try passOn(passed.intersection(asked))
  }

  /// Of jobs that end with others: more than that get a turn of their own.
  private static let mostGathered = 500

  /// Makes room for a small image that is to be kept in the database, where it isn't kept already. It is kept also where
  /// its room takes several transactions: those that come next make it.
  /// - Parameter arriving: such images of this transaction, with their sizes.
  /// - Returns: images that gave way to it.
  private func makeRoom(
    for request: ChangeRequest, _ arriving: inout [[UInt8]: Int], _ totals: Totals
  ) throws -> [ImageName] {
    guard let image = request.image, let completion = request.completion,
      arriving[image.digest.bytes] == nil
    else { return [] }
    let digest = image.digest.bytes
    let known = try execute("SELECT leaving FROM images WHERE digest = $1", [.bytes(digest)])
    guard known.isEmpty || known.bool(0, 0) else { return [] }
    let coming = arriving.values.reduce(image.content.count, +)
    arriving[digest] = image.content.count
    guard totals[.imageBytes] + coming > completion.imageLimit else { return [] }
    guard try pinnedBytes(with: digest) + coming <= completion.imageLimit else {
      throw StoreError.full
    }
    return try makeRoom(
      within: completion.imageLimit - coming, atLeast: image.content.count, totals,
      for: completion.instance)
  }

  /// What follows once the jobs and the entries are written.
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
    let released = try endReservations(of: releasing)
    try noteCandidates(released.subtracting(begun))
  }
}
