import Jobs
import Synchronization
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("A PostgreSQL server that fails", .timeLimit(.minutes(15)))
struct PostgresOutageTests {
  private static func open(
    _ database: TestDatabase, timeout: Duration = .seconds(10)
  ) throws -> SQLJobStore {
    var configuration = SQLJobStore.Configuration(url: database.url)
    configuration.timeout = timeout
    return try SQLJobStore(configuration)
  }

  /// Records what the store has acknowledged.
  private final class Witness: Sendable {
    let submitted = Mutex(Set<JobID>())
    let ended = Mutex(Set<JobID>())
    let isOver = Atomic(false)

    /// Waits until the given numbers are reached, with a long timeout for slow machines.
    func has(submitted: Int, ended: Int) async {
      let deadline = ContinuousClock.now + patience
      while ContinuousClock.now < deadline {
        let isReached =
          self.submitted.withLock(\.count) >= submitted && self.ended.withLock(\.count) >= ended
        if isReached { return }
        try? await Task.sleep(for: .milliseconds(10))
      }
    }
  }

  @Test("a crash under load loses nothing that was acknowledged, and no job finishes twice")
  func crash() async throws {
    let server = try PostgresServer(isDurable: true)
    let database = try TestDatabase(in: server)
    let store = try Self.open(database)
    // A trigger writes a row for each finished job.
    try server.run(
      """
      CREATE TABLE ends (id uuid PRIMARY KEY);
      CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO ends VALUES (NEW.id); RETURN NEW; END';
      CREATE TRIGGER note_end AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (OLD.phase = 0 AND NEW.phase > 0) EXECUTE FUNCTION note_end()
      """, in: database.name)
    let instance = try await store.register(for: .seconds(10_000))
    let witness = Witness()
    await withTaskGroup(of: Void.self) { group in
      for client in 0..<6 {
        group.addTask { await Self.submit(Int64(client), to: store, witness) }
      }
      for _ in 0..<3 { group.addTask { await Self.work(on: store, instance, witness) } }
      for round in 1...4 {
        await witness.has(submitted: 30 * round, ended: 10 * round)
        guard round < 4 else { break }
        server.crash()
        do { try server.start() } catch { Issue.record(error) }
      }
      witness.isOver.store(true, ordering: .relaxed)
    }
    let (submitted, ended) = (witness.submitted.withLock(\.self), witness.ended.withLock(\.self))
    #expect(submitted.count >= 120 && ended.count >= 40, "\(submitted.count), \(ended.count)")
    for id in submitted { #expect(try await store.job(id) != nil) }
    for id in ended { #expect(try await store.job(id)?.phase == .success) }
    let ends = try server.run("SELECT count(*) FROM ends", in: database.name)
    let finished = try await store.counts().jobs[.success]
    #expect(Int(ends.filter(\.isNumber)) == finished)
    try await store.audit()
    await store.close()
  }

  private static func submit(
    _ client: Int64, to store: SQLJobStore, _ witness: Witness
  ) async {
    var number: Int64 = 0
    while !witness.isOver.load(ordering: .relaxed) {
      number += 1
      let jobs = (0..<3).map { Job.sample(client * 100_000 + number * 3 + $0) }
      let outcome = try? await store.submit(jobs, key: nil, capacity: .max)
      if outcome == .accepted { witness.submitted.withLock { $0.formUnion(jobs.map(\.id)) } }
      if outcome == nil { try? await Task.sleep(for: .milliseconds(20)) }
    }
  }

  private static func work(
    on store: SQLJobStore, _ instance: Instance, _ witness: Witness
  ) async {
    while !witness.isOver.load(ordering: .relaxed) {
      guard
        let claims = try? await store.claim(8, for: instance, room: .unlimited).jobs.map(\.claim),
        !claims.isEmpty
      else {
        try? await Task.sleep(for: .milliseconds(10))
        continue
      }
      let completion = Completion(claims) {
        $0.succeed(with: .sample(1), bytes: 10, at: .at(9))
        return true
      }
      guard let done = try? await store.complete(completion) else { continue }
      let ids = done.jobs.compactMap { $0?.id }
      // Only this task holds these claims, so it receives each of their results once.
      witness.ended.withLock { ended in
        for id in ids where !ended.insert(id).inserted { Issue.record("\(id) ended twice") }
      }
    }
  }

  @Test(
    "the next claim requeues a job whose claim was committed although its answer was lost")
  func unknownClaim() async throws {
    let database = try TestDatabase(in: .shared)
    let store = try Self.open(database)
    let instance = try await store.register(for: .seconds(1_000))
    _ = try await store.submit([.sample(1), .sample(2)], key: nil, capacity: 9)
    let known = try await store.claim(1, for: instance, room: .unlimited).jobs
    let uncertain = try await store.claim(1, for: instance, room: .unlimited).jobs
    store.unknownClaims.add([try #require(uncertain.first).claim.number])
    let next = try await store.claim(9, for: instance, room: .unlimited).jobs
    #expect(next.map(\.job.id) == uncertain.map(\.job.id) && known.count == 1)
    #expect(next.first?.claim != uncertain.first?.claim)
    let renewal = try await store.renew(instance, for: .seconds(9))
    #expect(renewal?.claims == Set((known + next).map(\.claim)))
    try await store.audit()
    await store.close()
  }

  @Test("a claim that may be committed during its repetition is checked again by the next one")
  func lateClaim() {
    let unknown = UncertainClaims()
    let attempt = ClaimAttempt(unknown)
    #expect(attempt.startTry() == [])
    _ = attempt.record([1, 2])
    #expect(attempt.startTry() == [1, 2])
    _ = attempt.record([3])
    attempt.succeed()
    let next = ClaimAttempt(unknown)
    #expect(next.startTry() == [1, 2])
    _ = next.record([4])
    next.succeed()
    #expect(ClaimAttempt(unknown).startTry() == [])
  }

  @Test("a claim that is committed after the next one is found by a renewal of the lease")
  func lateCommit() async throws {
    let database = try TestDatabase(in: .shared)
    let store = try Self.open(database)
    let instance = try await store.register(for: .seconds(1_000))
    func claim() async throws -> [Claim] {
      try await store.claim(9, for: instance, room: .unlimited).jobs.map(\.claim)
    }
    func held() async throws -> Set<Claim>? {
      try await store.renew(instance, for: .seconds(1_000))?.claims
    }
    let number = ClaimNumbers.number(store.claims.load(ordering: .relaxed) + 1, of: instance)
    store.unknownClaims.add([number])
    #expect(try await claim().isEmpty, "nothing is committed yet")
    _ = try await store.submit([.sample(1)], key: nil, capacity: 9)
    // This claim simulates the late commit.
    let late = try await claim()
    #expect(late.map(\.number) == [number])
    #expect(try await claim().isEmpty)
    #expect(try await held() == Set(late))
    let next = try await claim()
    #expect(next.map(\.job) == late.map(\.job) && next != late)
    #expect(try await held() == Set(next))
    #expect(try await claim().isEmpty, "the claim is known")
    try await store.audit()
    await store.close()
  }

  @Test("a server that stops answering is given up at the deadline, and used again later")
  func paused() async throws {
    let server = try PostgresServer()
    let database = try TestDatabase(in: server)
    let store = try Self.open(database, timeout: .seconds(1))
    let job = Job.sample(1)
    _ = try await store.submit([job], key: nil, capacity: 9)
    server.pause()
    defer { server.resume() }
    let clock = ContinuousClock()
    let time = await clock.measure {
      await withTaskGroup(of: Void.self) { group in
        for number in 0..<5 {
          group.addTask {
            await #expect(throws: StoreError.self) {
              try await store.submit([.sample(Int64(10 + number))], key: nil, capacity: 99)
            }
          }
          group.addTask {
            await #expect(throws: StoreError.self) { try await store.job(job.id) }
          }
        }
      }
    }
    // One second for the call, up to three for a new connection, and a margin for busy machines.
    #expect(time < .seconds(30), "\(time)")
    server.resume()
    let deadline = clock.now + patience
    var found: Job?
    while found == nil, clock.now < deadline {
      found = try? await store.job(job.id)
      try await Task.sleep(for: .milliseconds(50))
    }
    #expect(found == job)
    await store.close()
  }

  @Test("connect_timeout in the URL limits the wait for a server that does not answer")
  func connectTimeout() throws {
    let server = try PostgresServer.shared
    let proxy = try FaultyProxy(to: server.port)
    proxy.become(.stall)
    let url = server.url(of: "postgres", at: proxy.port) + "?connect_timeout=2"
    // If the URL's setting is ignored, this test runs into its time limit.
    let address = PostgresConnection.Address(url: url, connectTimeout: 3_600)
    #expect(throws: Fault.self) { _ = try PostgresConnection(address) }
  }

  @Test(
    "a start is refused with a newer release's tables, and one of many concurrent starts makes them"
  )
  func migrations() async throws {
    let database = try TestDatabase(in: .shared)
    let stores = try await withThrowingTaskGroup(of: SQLJobStore.self) { group in
      for _ in 0..<4 { group.addTask { try Self.open(database) } }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    _ = try await stores[0].submit([.sample(1)], key: nil, capacity: 9)
    #expect(try await stores[3].counts().jobs[.queued] == 1)
    for store in stores { await store.close() }
    try database.server.run("INSERT INTO versions (number) VALUES (99)", in: database.name)
    #expect(
      throws: StoreError.unavailable(
        detail: "the database was written by a newer release: it has version 99")
    ) { try Self.open(database) }
  }

  /// Waits until the event connections of `count` stores are listening.
  /// - Returns: the process ids of their server processes.
  @discardableResult
  private func eventuallyListening(
    in database: TestDatabase, _ count: Int = 2
  ) async throws -> [Int] {
    let looking = """
      SELECT pid FROM pg_stat_activity
      WHERE datname = '\(database.name)' AND query LIKE '%LISTEN%' AND pid <> pg_backend_pid()
      """
    let deadline = ContinuousClock.now + patience
    while ContinuousClock.now < deadline {
      let found = try database.server.run(looking).split(whereSeparator: \.isNewline)
      if found.count == count { return found.compactMap { Int($0) } }
      try await Task.sleep(for: .milliseconds(20))
    }
    Issue.record("not \(count) listen")
    return []
  }

  /// Waits for an event, for up to 15 seconds.
  private func receives(_ wanted: InstanceEvent, in news: AsyncStream<InstanceEvent>) async -> Bool
  {
    await withTaskGroup(of: Bool.self) { group in
      group.addTask {
        for await one in news where one == wanted { return true }
        return false
      }
      group.addTask {
        try? await Task.sleep(for: .seconds(15))
        return false
      }
      defer { group.cancelAll() }
      return await group.next() ?? false
    }
  }

  @Test("events published while the connection is broken are sent after the reconnection")
  func brokenNews() async throws {
    let database = try TestDatabase(in: .shared)
    let store = try Self.open(database)
    let pid = try #require(try await eventuallyListening(in: database, 1).first)
    let other = try Self.open(database)
    let instance = try await store.register(for: .seconds(1_000))
    let received = other.events(for: try await other.register(for: .seconds(1_000)))
    try await eventuallyListening(in: database)
    try database.server.run("SELECT pg_terminate_backend(\(pid))")
    // During the pause before the next connection.
    try await Task.sleep(for: .milliseconds(100))
    let id = JobID(at: .at(1))
    store.publish(.changed(id), from: instance)
    #expect(await receives(.changed(id), in: received))
    await store.close()
    await other.close()
  }

  @Test("events that were not sent when the connection broke are sent first later")
  func cutNews() async throws {
    let database = try TestDatabase(in: .shared)
    let proxy = try FaultyProxy(to: database.server.port)
    let url = database.server.url(of: database.name, at: proxy.port)
    let store = try SQLJobStore(SQLJobStore.Configuration(url: url))
    let other = try Self.open(database)
    let instance = try await store.register(for: .seconds(1_000))
    let received = other.events(for: try await other.register(for: .seconds(1_000)))
    try await eventuallyListening(in: database)
    let (first, second) = (JobID(at: .at(1)), JobID(at: .at(2)))
    let cuts = Atomic(0)
    proxy.judge { bytes in
      guard String(decoding: bytes, as: UTF8.self).contains("\(first)") else { return .none }
      cuts.add(1, ordering: .relaxed)
      return .cut
    }
    store.publish(.changed(first), from: instance)
    // Each try uses a new connection.
    let deadline = ContinuousClock.now + patience
    while cuts.load(ordering: .relaxed) < 2, ContinuousClock.now < deadline {
      try await Task.sleep(for: .milliseconds(10))
    }
    store.publish(.changed(second), from: instance)
    proxy.judge(nil)
    for id in [first, second] { #expect(await receives(.changed(id), in: received)) }
    await store.close()
    await other.close()
  }

  @Test(
    "a network setting that may not have been sent is replaced by the event that some were lost")
  func cutState() async throws {
    let database = try TestDatabase(in: .shared)
    let proxy = try FaultyProxy(to: database.server.port)
    let url = database.server.url(of: database.name, at: proxy.port)
    let store = try SQLJobStore(SQLJobStore.Configuration(url: url))
    let other = try Self.open(database)
    let instance = try await store.register(for: .seconds(1_000))
    let received = other.events(for: try await other.register(for: .seconds(1_000)))
    try await eventuallyListening(in: database)
    let cuts = Atomic(0)
    proxy.judge { bytes in
      guard String(decoding: bytes, as: UTF8.self).contains("\nn1"),
        cuts.add(1, ordering: .relaxed).oldValue == 0
      else { return .none }
      return .cut
    }
    store.publish(.constrained(true), from: instance)
    while cuts.load(ordering: .relaxed) == 0 { try await Task.sleep(for: .milliseconds(5)) }
    // Repeating the setting could undo a newer one of another instance.
    #expect(await receives(.lost, in: received))
    proxy.judge(nil)
    await store.close()
    await other.close()
  }

  @Test("notifications that arrive together with an answer are processed at once")
  func newsInAnswer() async throws {
    let database = try TestDatabase(in: .shared)
    let store = try Self.open(database)
    let instance = try await store.register(for: .seconds(1_000))
    let received = store.events(for: instance)
    try await eventuallyListening(in: database, 1)
    // The store's NOTIFY waits for the lock, and its answer arrives together with this
    // notification.
    async let others: String = Task.detached {
      try database.server.run(
        """
        BEGIN; LOCK TABLE instances IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(2);
        SELECT pg_notify('imagefetch', E'another\\nq'); COMMIT
        """, in: database.name)
    }.value
    try await Task.sleep(for: .milliseconds(700))
    store.publish(.cacheDeleted, from: instance)
    _ = try await others
    #expect(await receives(.queued, in: received))
    await store.close()
  }

  @Test("a removal of many jobs is sent as one event, and a too large event as lost events")
  func longNews() async throws {
    let database = try TestDatabase(in: .shared)
    let (store, other) = (try Self.open(database), try Self.open(database))
    let instance = try await store.register(for: .seconds(1_000))
    let received = other.events(for: try await other.register(for: .seconds(1_000)))
    try await eventuallyListening(in: database)
    let removed = InstanceEvent.removed(
      (0..<InstanceEvent.mostIDs).map { JobID(at: .at(Int64($0))) })
    store.publish(removed, from: instance)
    store.publish(.imagesDeleted((0..<500).map { ImageDigest.sample($0) }), from: instance)
    store.publish(.queued, from: instance)
    // In this order: a store that has just connected also receives `.lost`.
    for news in [removed, .lost, .queued] { #expect(await receives(news, in: received)) }
    await store.close()
    await other.close()
  }

  @Test("two stores receive each other's events and not their own")
  func news() async throws {
    let database = try TestDatabase(in: .shared)
    let (store, other) = (try Self.open(database), try Self.open(database))
    let instance = try await store.register(for: .seconds(1_000))
    let another = try await other.register(for: .seconds(1_000))
    let (own, received) = (store.events(for: instance), other.events(for: another))
    let ids = (0..<500).map { JobID(at: .at(Int64($0))) }
    // No event is received before both connections listen.
    try await eventuallyListening(in: database)
    for id in ids { store.publish(.changed(id), from: instance) }
    store.publish(.removed([ids[0]]), from: instance)
    other.publish(.queued, from: another)
    var found: [InstanceEvent] = []
    for await news in received where isOfAnother(news) {
      found.append(news)
      if found.count == ids.count + 1 { break }
    }
    #expect(found == ids.map { .changed($0) } + [.removed([ids[0]])])
    for await news in own where isOfAnother(news) {
      #expect(news == .queued)
      break
    }
    await store.close()
    await other.close()
  }

  private func isOfAnother(_ news: InstanceEvent) -> Bool {
    if case .heartbeat = news { return false }
    return news != .lost
  }

  @Test("an announcement returns the live instances, and arrives before a later heartbeat")
  func announcement() async throws {
    let database = try TestDatabase(in: .shared)
    let (store, other) = (try Self.open(database), try Self.open(database))
    let instance = try await store.register(for: .seconds(1_000))
    let another = try await other.register(for: .seconds(1_000))
    let ended = try await other.register(for: .seconds(1_000))
    try await other.retire(ended)
    let received = other.events(for: another)
    try await eventuallyListening(in: database)
    let id = JobID(at: .at(1))
    let name = AnnouncementID(instance: instance, number: 7)
    let events: [InstanceEvent] = [
      .announced(id, name), .confirmed(name, by: another),
    ]
    for event in events {
      let live = try await store.announce(event, from: instance)
      #expect(live == [another])
    }
    let end = ContinuousClock.now
    var found: [InstanceEvent] = []
    for await event in received {
      if case .heartbeat(let asked) = event {
        if asked > end { break }
      } else if event != .lost {
        found.append(event)
      }
    }
    #expect(found == events)
    await store.close()
    await other.close()
  }

  @Test("a connected store publishes heartbeats")
  func heardUntil() async throws {
    let database = try TestDatabase(in: .shared)
    let store = try Self.open(database)
    let received = store.events(for: try await store.register(for: .seconds(1_000)))
    try await eventuallyListening(in: database, 1)
    let began = ContinuousClock.now
    for await case .heartbeat(let moment) in received where moment > began {
      #expect(moment <= .now)
      break
    }
    await store.close()
  }

  /// Purges a batch with one job, which is still to be deleted.
  private func purgeList(in store: SQLJobStore) async throws {
    let batch = Batch.sample(1)
    _ = try await store.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: [1])
    _ = try await store.add(lines, to: batch.id, capacity: .max)
    _ = try await store.purge(batch.id)
  }

  @Test("a rolled back deletion of a batch's jobs publishes no lost events")
  func undoneEnds() async throws {
    let database = try TestDatabase(in: .shared)
    let (store, other) = (try Self.open(database), try Self.open(database))
    let instance = try await store.register(for: .seconds(1_000))
    let received = other.events(for: try await other.register(for: .seconds(1_000)))
    try await eventuallyListening(in: database)
    try await purgeList(in: store)
    // Earlier `.lost` events arrive before this one.
    store.publish(.cacheDeleted, from: instance)
    #expect(await receives(.cacheDeleted, in: received))
    // The first commit fails with a conflict.
    try database.server.run(
      """
      CREATE SEQUENCE commits;
      CREATE FUNCTION collide() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN IF nextval(''commits'') = 1 THEN RAISE SQLSTATE ''40P01''; END IF; RETURN NULL; END';
      CREATE CONSTRAINT TRIGGER collide AFTER DELETE ON jobs DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION collide()
      """, in: database.name)
    #expect(try await store.endStopped(9, keptFor: .seconds(9)).removed.count == 1)
    let commits = try database.server.run("SELECT last_value FROM commits", in: database.name)
    #expect(commits.filter(\.isNumber) == "2")
    store.publish(.queued, from: instance)
    for await news in received {
      #expect(news != .lost)
      if news == .queued { break }
    }
    await store.close()
    await other.close()
  }

  @Test("a deletion of a batch's jobs whose answer was lost publishes that events were lost")
  func unheardEnds() async throws {
    let database = try TestDatabase(in: .shared)
    let proxy = try FaultyProxy(to: database.server.port)
    let url = database.server.url(of: database.name, at: proxy.port)
    let store = try SQLJobStore(SQLJobStore.Configuration(url: url))
    let other = try Self.open(database)
    let instance = try await store.register(for: .seconds(1_000))
    let received = other.events(for: try await other.register(for: .seconds(1_000)))
    try await eventuallyListening(in: database)
    try await purgeList(in: store)
    // Earlier `.lost` events arrive before this one.
    store.publish(.cacheDeleted, from: instance)
    #expect(await receives(.cacheDeleted, in: received))
    try database.server.run(
      """
      CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(2); RETURN NULL; END';
      CREATE CONSTRAINT TRIGGER linger AFTER DELETE ON jobs DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION linger()
      """, in: database.name)
    async let ends = store.endStopped(9, keptFor: .seconds(9))
    let committing = """
      SELECT count(*) FROM pg_stat_activity
      WHERE datname = '\(database.name)' AND wait_event = 'PgSleep'
      """
    let deadline = ContinuousClock.now + patience
    while try database.server.run(committing).filter(\.isNumber) != "1", .now < deadline {
      try await Task.sleep(for: .milliseconds(10))
    }
    proxy.become(.cut)
    proxy.become(.none)
    // The repetition finds no job to delete.
    let ended = try? await ends
    #expect(ended?.removed.isEmpty != false)
    #expect(await receives(.lost, in: received))
    await store.close()
    await other.close()
  }
}
