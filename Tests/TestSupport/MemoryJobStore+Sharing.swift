package import Jobs
internal import Synchronization

/// Leases of instances, which expire by the store's clock.
extension MemoryJobStore: InstanceLeases, InstanceEvents {
  package func register(for lease: Duration) async throws(StoreError) -> Instance {
    lastInstance += 1
    if !leases.values.contains(where: { $0 > now }) { constrained = nil }
    let instance = Instance(number: lastInstance)
    leases[instance] = now + lease
    return instance
  }

  package func renew(
    _ instance: Instance, for lease: Duration
  ) async throws(StoreError) -> Renewal? {
    guard leases[instance] != nil else { return nil }
    leases[instance] = now + lease
    let claims = rows.values.compactMap(\.claim).filter { $0.instance == instance }
    let leads = !leases.contains { $0.key.number < instance.number && $0.value > now }
    return Renewal(at: now, holding: Set(claims), leads: leads)
  }

  package func retire(_ instance: Instance) async throws(StoreError) {
    leases[instance] = nil
    exchange.close(instance)
  }

  package func recoverExpired(_ count: Int) async throws(StoreError) -> [Job] {
    let moment = now
    leases = leases.filter { $0.value > moment }
    let lost = rows.values.filter { row in row.claim.map { leases[$0.instance] == nil } ?? false }
    var jobs: [Job] = []
    for var row in lost.prefix(count) {
      let (before, hasLed) = (row.job, row.leads)
      row.job.requeue()
      witnessed(before, row.job)
      (row.claim, row.lastClaim, row.leads) = (nil, nil, false)
      rows[row.job.id] = row
      if hasLed { passOn(before) }
      jobs.append(row.job)
    }
    guard jobs.count < count else { return jobs }
    reservations = reservations.filter { leases[$0.value.by] != nil }
    for (image, mark) in pendingDeletion where leases[mark.by] == nil {
      pendingDeletion[image] = nil
      if mark.bytes > 0 { sizes[image] = sizes[image] ?? mark.bytes }
    }
    return jobs
  }

  func check(_ instance: Instance) throws(StoreError) {
    guard let end = leases[instance], end > now else { throw .leaseLost }
  }

  /// Ends all instances at once, like a machine that loses power.
  package func loseInstances() {
    leases = [:]
    served = ServedQueues()
  }

  /// Undoes a claim, like a crash of a shared store that had not synced it. Another instance then claims and changes the job.
  /// - Returns: The changed job; nil if there is no claim to undo.
  package func undoClaim(
    of id: JobID, for other: Instance, _ change: @Sendable (inout Job) -> Bool
  ) throws(StoreError) -> Job? {
    guard var row = rows[id], row.claim != nil, let before = unclaimed[id] else { return nil }
    (row.job, row.leads) = (before, false)
    return try make(change, to: id, under: claimRow(row, for: other, at: now).claim)
  }

  package func isConstrained() async throws(StoreError) -> Bool? { isExclusive ? nil : constrained }

  package func setConstrained(_ isConstrained: Bool) async throws(StoreError) {
    if !isExclusive { constrained = isConstrained }
  }

  package nonisolated func events(for instance: Instance) -> AsyncStream<InstanceEvent> {
    exchange.events(for: instance)
  }

  package nonisolated func publish(_ news: InstanceEvent, from instance: Instance) {
    let isHeld = heldEvents.withLock { held in
      held?.append((news, instance))
      return held != nil
    }
    if !isHeld { exchange.publish(news, from: instance) }
  }

  /// Holds back all events between instances until ``releaseEvents()``.
  package nonisolated func holdEvents() { heldEvents.withLock { $0 = $0 ?? [] } }

  package nonisolated func releaseEvents() {
    let held = heldEvents.withLock { held in
      defer { held = nil }
      return held ?? []
    }
    for (event, instance) in held { exchange.publish(event, from: instance) }
  }

  package func announce(
    _ event: InstanceEvent, from instance: Instance
  ) async throws(StoreError) -> Set<Instance> {
    publish(event, from: instance)
    return Set(leases.filter { $0.key != instance && $0.value > now }.keys)
  }
}

/// The loads of all instances, and their effect on other instances.
extension MemoryJobStore {
  /// The jobs that other instances load.
  func loaded(besides instance: Instance) -> Set<Fingerprint> {
    guard !isExclusive else { return [] }
    let rows = rows.values.filter { $0.leads && $0.claim?.instance != instance }
    return Set(rows.compactMap(\.job.request))
  }

  /// Whether another instance loads an equal job.
  func isAwaited(_ job: Job, among loaded: Set<Fingerprint>) -> Bool {
    !loaded.isEmpty
      && QueueOrder.isAwaited(origin: job.origin, request: job.request, among: loaded)
  }

  /// Returns the part of the origins' capacity that other instances leave.
  func left(
    of room: OriginCapacity, for instance: Instance, at moment: Timestamp
  ) -> OriginCapacity {
    guard !isExclusive, room.overall != nil else { return room }
    var left = room
    for origin in Set(rows.values.compactMap(\.job.origin)) {
      let others = rows.values.count {
        $0.leads && $0.job.origin == origin && $0.claim?.instance != instance
      }
      let mayAsk = nextAsking[origin] ?? 0 <= moment.milliseconds * 1_000
      left.exceptions[origin] = room.remaining(at: origin, besides: others, mayRequest: mayAsk)
    }
    return left
  }

  /// After a claim: marks the job as the representative of its transfer, unless an equal job already is.
  func lead(_ job: Job, by rate: Double, at moment: Timestamp) {
    guard let origin = job.origin else { return }
    if let request = job.request,
      rows.values.contains(where: { $0.leads && $0.job.request == request })
    {
      return
    }
    rows[job.id]?.leads = true
    guard rate > 0 else { return }
    let now = moment.milliseconds * 1_000
    nextAsking[origin] = max(nextAsking[origin] ?? now, now) + Int64(1_000_000 / rate)
  }

  /// When a representative ends: another job that waits for the same transfer replaces it.
  func passOn(_ job: Job) {
    guard let request = job.request else { return }
    let heir = rows.values.filter {
      $0.claim != nil && $0.job.origin != nil && $0.job.request == request
    }
    .map(\.job.id).min()
    if let heir { rows[heir]?.leads = true }
  }

  /// Claims the jobs that wait for the jobs that a completion has finished.
  func gather(_ completion: Completion, from before: [JobID: Row]) -> [ClaimedJob] {
    let instance = completion.instance
    guard completion.claimsEqual, !isExclusive, (try? check(instance)) != nil else { return [] }
    let ended = completion.claims.compactMap { claim -> Job? in
      guard let row = before[claim.job], row.claim == claim, rows[claim.job]?.claim == nil,
        row.job.origin != nil
      else { return nil }
      return row.job
    }
    let requests = Set(ended.compactMap(\.request))
    let queuedAgain = Set(
      completion.claims.filter { before[$0.job]?.claim == $0 && rows[$0.job]?.claim == nil }
        .map(\.job))
    let waiting = queue {
      $0.origin != nil && !queuedAgain.contains($0.id)
        && ($0.request.map(requests.contains) ?? false)
    }
    let gathered = waiting.prefix(500).map { claimRow($0, for: instance, at: now) }
    // If the representative is among the finished jobs, the first of the newly claimed ones replaces it.
    for job in ended where before[job.id]?.leads == true {
      for id in rows.filter({ $0.value.job.request == job.request }).keys {
        rows[id]?.leads = false
      }
      passOn(job)
    }
    return gathered.map { ClaimedJob(job: $0.job, claim: $0.claim) }
  }
}
