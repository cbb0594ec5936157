package import Jobs
internal import Logging

/// Leases of instances. A lease is a row with an end time on the clock of the SQL function `lease_moment`: the server's clock,
/// so that every instance can see that it expired; with a single process, a clock that is never set.
extension SQLJobStore: InstanceLeases, InstanceEvents {
  /// Assigns the next instance number.
  package func register(for lease: Duration) async throws(StoreError) -> Instance {
    let instance = try await perform(on: leaseThread) { [description, workers] transaction in
      // Excludes the begin of a copy into this database.
      try transaction.lock(.schema)
      try transaction.checkCopyIsComplete()
      let number = try transaction.execute(
        """
        INSERT INTO instances (lease_until, since, name, version, workers)
        VALUES (lease_moment($1) + $2, moment($1), $3, $4, $5) RETURNING number
        """,
        [transaction.moment, .int(lease.inMilliseconds)]
          + description.map { .bytes($0.map { Array($0.utf8) }) } + [.int(workers.map(Int64.init))]
      ).int(0, 0)
      // An operator's setting stays while any instance has a lease. A copy of this database that was interrupted can't be
      // continued.
      try transaction.execute(
        """
        DELETE FROM settings WHERE name = 'marked' OR name = 'constrained' AND NOT EXISTS (SELECT 1
          FROM instances WHERE NOT ended AND lease_until > lease_moment($1) AND number <> $2)
        """, [transaction.moment, .int(number)])
      guard let number else { throw StoreError.unavailable(detail: "an instance without a number") }
      return Instance(number: number)
    }
    addInstance(instance)
    return instance
  }

  /// Renews the lease without waiting for the disk: a crash of the server only shortens the lease.
  /// Claims whose commit was uncertain are compared with the claims held now; the next claim
  /// requeues their jobs.
  package func renew(
    _ instance: Instance, for lease: Duration
  ) async throws(StoreError) -> Renewal? {
    let renewal = try await perform(on: leaseThread, isSynced: false) { transaction -> Renewal? in
      let renewed = try transaction.execute(
        """
        UPDATE instances SET lease_until = lease_moment($1) + $2 WHERE number = $3 AND NOT ended
        RETURNING moment($1), NOT EXISTS (SELECT 1 FROM instances o
          WHERE o.number < $3 AND NOT o.ended AND o.lease_until > lease_moment($1))
        """, [transaction.moment, .int(lease.inMilliseconds), .int(instance.number)])
      guard let moment = renewed.int(0, 0) else { return nil }
      let held = try transaction.execute(
        "SELECT id, claim FROM queue WHERE state = 4 AND instance = $1", [.int(instance.number)])
      let claims = held.all.compactMap { row -> Claim? in
        guard let id = held.id(row, 0), let number = held.int(row, 1) else { return nil }
        return Claim(job: id, instance: instance, number: number)
      }
      return Renewal(
        at: Timestamp(milliseconds: moment), holding: Set(claims), leads: renewed.bool(0, 1))
    }
    let held = Set(renewal?.claims.map(\.number) ?? [])
    if unknownClaims.recheck(among: held) { wakeAllInstances() }
    return renewal
  }

  /// Ends the lease; the next recovery requeues the instance's jobs.
  package func retire(_ instance: Instance) async throws(StoreError) {
    exchange.close(instance)
    try await perform(on: leaseThread) { transaction in
      _ = try transaction.execute(
        "UPDATE instances SET lease_until = 0, ended = true WHERE number = $1",
        [.int(instance.number)])
    }
  }

  /// Requeues the jobs of instances whose lease expired. While all leases are valid this costs one
  /// query. A silent instance may not have published its last events, so all instances receive
  /// `.lost`.
  package func recoverExpired(_ count: Int) async throws(StoreError) -> [Job] {
    guard count > 0 else { return [] }
    let isDue = try await read {
      try !$0.execute(
        """
        SELECT 1 WHERE EXISTS (SELECT 1 FROM instances WHERE ended OR lease_until <= lease_moment($1))
          OR EXISTS (SELECT 1 FROM queue q WHERE q.state = 3
            AND NOT EXISTS (SELECT 1 FROM queue l WHERE l.state = 4 AND l.leads AND l.request = q.request))
        """, [$0.moment]
      ).isEmpty
    }
    guard isDue else { return [] }
    let recovery = try await write { try $0.requeueLostJobs(count) }
    for error in recovery.unreadable {
      log.error("failed to requeue a job", metadata: ["error": "\(error)"])
    }
    // The dead instances' last events may never have been published.
    if recovery.includesSilentInstance { publish(.lost, from: .none) }
    if recovery.hasReadyJobs { wakeAllInstances() }
    return recovery.jobs
  }

  /// Counts the jobs by the index of claimed jobs.
  package func presentInstances() async throws(StoreError) -> [PresentInstance] {
    guard !hasOneWriter else { return [] }
    return try await read { transaction in
      let rows = try transaction.execute(
        """
        SELECT number, name, version, since, workers, loading, running, greatest(moment($1) - oldest, 0),
          cache_hits, cache_revalidations, cache_misses, cache_memory
        FROM instances i CROSS JOIN LATERAL (
          SELECT count(*) AS loading, count(*) FILTER (WHERE leads OR origin IS NULL) AS running,
            min(claimed_at) AS oldest
          FROM queue q WHERE q.state = 4 AND q.instance = i.number) held
        WHERE NOT ended AND lease_until > lease_moment($1) ORDER BY number
        """, [transaction.moment])
      return rows.all.compactMap { row in
        guard let number = rows.int(row, 0), let since = rows.int(row, 3) else { return nil }
        let texts = [1, 2].map { rows.bytes(row, $0).map { String(decoding: $0, as: UTF8.self) } }
        let count = { (column: Int) in Int(rows.int(row, column) ?? 0) }
        var present = PresentInstance(
          Instance(number: number), name: texts[0], version: texts[1],
          since: Timestamp(milliseconds: since), loading: count(5))
        present.workers = rows.int(row, 4).map(Int.init)
        (present.running, present.oldest) = (count(6), .milliseconds(count(7)))
        (present.cache.hits, present.cache.revalidations) = (count(8), count(9))
        (present.cache.misses, present.cache.memoryBytes) = (count(10), count(11))
        return present
      }
    }
  }

  /// Adds to the counters of the current step, by the server's clock. A crash of the server may
  /// lose the last additions.
  package func record(
    _ step: Activity.Step, _ cache: CacheCounts, of instance: Instance
  ) async throws(StoreError) {
    guard !hasOneWriter else { return }
    try await perform(on: leaseThread, isSynced: false) { transaction in
      let now = try transaction.execute("SELECT moment($1)", [transaction.moment]).int(0, 0)
      guard let now else { return }
      let number = Activity.number(at: Timestamp(milliseconds: now))
      _ = try transaction.execute(
        """
        INSERT INTO activity AS a (step, instance, queued, loading, succeeded, failed)
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (step, instance) DO UPDATE
        SET queued = excluded.queued, loading = excluded.loading,
          succeeded = a.succeeded + excluded.succeeded, failed = a.failed + excluded.failed
        """,
        [number, instance.number].map(SQLValue.int)
          + [step.queued, step.loading, step.succeeded, step.failed].map { SQLValue.int(Int64($0)) }
      )
      _ = try transaction.execute(
        """
        UPDATE instances SET cache_hits = $2, cache_revalidations = $3, cache_misses = $4, cache_memory = $5
        WHERE number = $1
        """,
        [instance.number].map(SQLValue.int)
          + [cache.hits, cache.revalidations, cache.misses, cache.memoryBytes].map {
            SQLValue.int(Int64($0))
          })
      _ = try transaction.execute(
        """
        DELETE FROM activity WHERE (step, instance) IN (SELECT step, instance FROM activity
          WHERE step <= $1 LIMIT 1000 FOR UPDATE SKIP LOCKED)
        """, [.int(number - Int64(Activity.most))])
    }
  }

  /// Sums up the steps of all instances, including stopped ones. The last step may be incomplete.
  package func activity() async throws(StoreError) -> Activity? {
    guard !hasOneWriter else { return nil }
    return try await read { transaction in
      let now = try transaction.execute("SELECT moment($1)", [transaction.moment]).int(0, 0)
      let last = Activity.number(at: Timestamp(milliseconds: now ?? 0))
      let rows = try transaction.execute(
        """
        SELECT step, max(queued), max(loading), sum(succeeded)::bigint, sum(failed)::bigint
        FROM activity WHERE step > $1 AND step <= $2 GROUP BY step ORDER BY step
        """, [.int(last - Int64(Activity.most)), .int(last)])
      var (steps, next) = ([Activity.Step](), rows.int(0, 0) ?? last + 1)
      for row in rows.all {
        guard let number = rows.int(row, 0) else { continue }
        // No instance was running during these steps.
        while next < number {
          steps.append(Activity.Step())
          next += 1
        }
        var step = Activity.Step()
        (step.queued, step.loading) = (Int(rows.int(row, 1) ?? 0), Int(rows.int(row, 2) ?? 0))
        (step.succeeded, step.failed) = (Int(rows.int(row, 3) ?? 0), Int(rows.int(row, 4) ?? 0))
        steps.append(step)
        next = number + 1
      }
      return Activity(end: Activity.end(of: next - 1), steps: steps)
    }
  }

  package func isConstrained() async throws(StoreError) -> Bool? {
    try await read {
      let rows = try $0.execute("SELECT value FROM settings WHERE name = 'constrained'")
      return rows.bytes(0, 0).map { $0 == Array("1".utf8) }
    }
  }

  /// The setting stays until the last running instance stops.
  package func setConstrained(_ isConstrained: Bool) async throws(StoreError) {
    try await write {
      _ = try $0.execute(
        """
        INSERT INTO settings (name, value) VALUES ('constrained', $1)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value
        """, [.bytes(Array((isConstrained ? "1" : "0").utf8))])
    }
  }

  /// False if several instances may share the store.
  package var isExclusive: Bool { !isShared }

  /// Receives the events of other instances, in this process and in others.
  package func events(for instance: Instance) -> AsyncStream<InstanceEvent> {
    exchange.events(for: instance)
  }

  /// Publishes an event within this process at once, and to other processes within a short time.
  package func publish(_ news: InstanceEvent, from instance: Instance) {
    exchange.publish(news, from: instance)
    publishToOtherProcesses(news)
  }

  /// Sends an event in its own transaction, which need not be on the disk.
  package func announce(
    _ event: InstanceEvent, from instance: Instance
  ) async throws(StoreError) -> Set<Instance> {
    exchange.publish(event, from: instance)
    return try await announceToOtherProcesses(event, from: instance)
  }
}

/// The result of a recovery.
private struct Recovery: Sendable {
  var jobs: [Job] = []
  var unreadable: [StoreError] = []
  /// Whether an instance's lease expired without being ended by the instance.
  var includesSilentInstance = false
  /// Whether jobs that waited for equal loads became ready.
  var hasReadyJobs = false
}

extension Transaction {
  /// Checks the lease and locks the instance's row. A recovery runs before this transaction, or
  /// waits for it and sees its claims.
  /// - Returns: the current time of the server.
  func checkLease(of instance: Instance) throws -> Timestamp {
    let rows = try execute(
      """
      SELECT moment($2) FROM instances
      WHERE number = $1 AND NOT ended AND lease_until > lease_moment($2) FOR KEY SHARE
      """, [.int(instance.number), moment])
    guard let now = rows.int(0, 0) else { throw StoreError.leaseLost }
    return Timestamp(milliseconds: now)
  }

  /// Requeues the jobs of instances whose lease expired. An instance that is claiming jobs right
  /// now is skipped until the next call.
  fileprivate func requeueLostJobs(_ count: Int) throws -> Recovery {
    let ended = try execute(
      """
      UPDATE instances SET ended = true WHERE number IN (SELECT number FROM instances
        WHERE ended OR lease_until <= lease_moment($1) ORDER BY number FOR UPDATE SKIP LOCKED)
      RETURNING number, lease_until
      """, [moment])
    let numbers = ended.all.compactMap { ended.int($0, 0) }
    var recovery = Recovery()
    try makeWaitingJobsReady(count)
    recovery.hasReadyJobs = readyCount > 0
    guard !numbers.isEmpty else { return recovery }
    recovery.includesSilentInstance = ended.all.contains { ended.int($0, 1) != 0 }
    var after: JobID?
    while recovery.jobs.count < count {
      let lost = try lostJobs(of: numbers, after: after, count - recovery.jobs.count)
      guard let last = lost.last else { break }
      after = last
      var changes = try JobChanges(to: Set(lost), in: self)
      for id in lost {
        do {
          let job = try changes.change(id, under: nil) { job in
            guard job.phase == .loading else { return false }
            job.requeue()
            return true
          }
          if let job { recovery.jobs.append(job) }
        } catch let error as StoreError {
          recovery.unreadable.append(error)
        }
      }
      try changes.write()
      try continueLoads(changes.endedRequests())
      recovery.hasReadyJobs = readyCount > 0
    }
    if recovery.jobs.count < count { try deleteInstances(numbers) }
    return recovery
  }

  // `MATERIALIZED` makes both databases read the few loading jobs, instead of all jobs in the order of their ids.
  private func lostJobs(of instances: [Int64], after id: JobID?, _ count: Int) throws -> [JobID] {
    let rows = try execute(
      """
      WITH loading AS MATERIALIZED (SELECT id, instance FROM queue WHERE state = 4)
      SELECT id FROM loading WHERE instance = ANY ($1) AND ($2::uuid IS NULL OR id > $2)
      ORDER BY id LIMIT $3
      """, [.ints(instances), .id(id), .int(Int64(count))])
    return rows.all.compactMap { rows.id($0, 0) }
  }

  /// Deletes instances that hold no jobs any more, with their reservations. Images that they were
  /// deleting stay marked: another instance continues, because the bytes may still exist.
  private func deleteInstances(_ instances: [Int64]) throws {
    let reserved = try execute(
      "DELETE FROM reservations WHERE instance = ANY ($1) RETURNING digest", [.ints(instances)])
    let candidates = Set(reserved.all.compactMap { reserved.bytes($0, 0) })
    // A row without a size marks an orphaned file. The next sweep finds the file again.
    try add(
      "DELETE FROM images WHERE leaving AND leaving_for = ANY ($1) AND bytes = 0",
      [.ints(instances)])
    try addDeletionCandidates(candidates)
    try add(
      "UPDATE messages SET instance = NULL WHERE instance = ANY ($1)", [.ints(instances)])
    try add("DELETE FROM instances WHERE number = ANY ($1)", [.ints(instances)])
  }
}
