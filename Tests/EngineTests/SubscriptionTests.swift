import SQL
import Synchronization
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

/// Waits until the subscription has an update or ends.
private func nextUpdate(_ subscription: any JobSubscription) async throws -> JobUpdate {
  let deadline = ContinuousClock.now + patience
  while ContinuousClock.now < deadline {
    let news = subscription.next()
    if case .nothing = news {} else { return news }
    try await Task.sleep(for: .milliseconds(1))
  }
  throw NoUpdate()
}

private struct NoUpdate: Error {}

/// Returns the events up to the end or to `.caughtUp`, each with the job's phase: `phase loading`.
private func readAll(_ subscription: any JobSubscription) async throws -> [String] {
  var all: [String] = []
  while case .job(let snapshot, let events) = try await nextUpdate(subscription) {
    all += events.map { "\($0) \(snapshot.job.phase)" }
  }
  return all
}

private final class Count: Sendable {
  let value = Atomic(0)
  func up() { value.add(1, ordering: .relaxed) }
}

@Suite("A subscription to a job", .timeLimit(.minutes(15)))
struct SubscriptionTests {
  private let url = "http://a.example/x.png"

  @Test("a subscription receives the job as it is, its changes and its end")
  func wholeLife() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: Array(ok[..<4])))
      let id = try await shop.submit(url)
      let subscription = try await shop.engine.subscribe(
        to: id, for: Workshop.me, seen: nil, cancelsOnDisconnect: false)
      guard case .job(let first, let events) = try await nextUpdate(subscription) else {
        Issue.record("no update arrived")
        return
      }
      #expect(events == [.phase] && first.job.id == id)
      try await until {
        try await shop.engine.job(id, for: Workshop.me).job.progress.completed == 4
      }
      _ = try await shop.engine.cancel(id, for: Workshop.me)
      let rest = try await readAll(subscription)
      #expect(rest.last == "phase cancelled")
      guard case .end = subscription.next() else {
        Issue.record("there is an update after the end")
        return
      }
    }
  }

  /// Snapshots with one loading job.
  private func snapshots() throws -> (JobSnapshots, JobSnapshot) {
    let snapshots = JobSnapshots(
      capacity: 10, membership: Membership(store: MemoryJobStore()))
    var job = Job(
      NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil))),
      id: JobID(high: 1, low: 1), owner: Workshop.me.owner, createdAt: Timestamp(milliseconds: 0))
    job.start(at: job.createdAt)
    return (snapshots, try #require(snapshots.publish(job)))
  }

  private func advance(_ snapshots: JobSnapshots, _ job: Job, to count: Int) {
    var report = ProgressReport(of: job)
    report.progress.completed = count
    snapshots.report(job.id, report)
  }

  @Test("a job that is claimed again shows only the progress of its new load")
  func claimedAgain() throws {
    let (snapshots, snapshot) = try snapshots()
    let job = snapshot.job
    func shown(_ attempts: Int, _ count: Int) -> Int? {
      var report = ProgressReport(of: job)
      (report.attempts, report.progress.completed) = (attempts, count)
      snapshots.report(job.id, report)
      return snapshots.peek(job.id)?.job.progress.completed
    }
    #expect(shown(2, 500) == 500)
    #expect(shown(1, 900) == 500, "a late report of an earlier request")
    var again = job
    again.requeue()
    again.start(at: again.createdAt, by: Instance(number: 9))
    #expect(snapshots.publish(again, .claimedHere)?.job.progress.completed == 0)
    #expect(shown(1, 3) == 3)
  }

  @Test("a subscription receives nothing twice and is signaled for updates only")
  func lastHeard() async throws {
    let (snapshots, snapshot) = try snapshots()
    let subscription = snapshots.subscribers.subscribe(
      to: snapshot, seen: snapshot.job.version, holds: false, for: Workshop.me)
    let woken = Count()
    subscription.onUpdate { woken.up() }
    var job = snapshot.job
    _ = job.edit(priority: .high, tags: ["x"])
    snapshots.publish(job)
    await snapshots.subscribers.deliverDue()
    guard case .nothing = subscription.next() else {
      Issue.record("an update arrived twice")
      return
    }
    #expect(woken.value.load(ordering: .relaxed) == 0)
    _ = job.cancel(at: job.createdAt, keptFor: .zero)
    snapshots.publish(job)
    await snapshots.subscribers.deliverDue()
    #expect(woken.value.load(ordering: .relaxed) == 1)
    #expect(try await readAll(subscription) == ["phase cancelled"])
  }

  @Test("a slow subscriber receives many changes as one, with the newest state")
  func coalesced() async throws {
    let (snapshots, snapshot) = try snapshots()
    let subscription = snapshots.subscribers.subscribe(
      to: snapshot, seen: snapshot.job.version, holds: false, for: Workshop.me)
    for count in 1...100 {
      advance(snapshots, snapshot.job, to: count)
      await snapshots.subscribers.deliverDue()
    }
    var job = try #require(snapshots.peek(snapshot.job.id)?.job)
    job.requeue()
    snapshots.publish(job)
    await snapshots.subscribers.deliverDue()
    guard case .job(let newest, let events) = subscription.next() else {
      Issue.record("no update arrived")
      return
    }
    #expect(events == [.phase, .progress])
    #expect(newest.job == job && newest.job.progress.completed == 100)
    guard case .nothing = subscription.next() else {
      Issue.record("there is another update")
      return
    }
  }

  @Test("a subscription receives progress at most ten times a second, and always the last one")
  func paced() async throws {
    let (snapshots, snapshot) = try snapshots()
    let subscription = snapshots.subscribers.subscribe(
      to: snapshot, seen: snapshot.job.version, holds: false, for: Workshop.me)
    let begin = ContinuousClock.now
    var received: [Int] = []
    for count in 1...300 {
      advance(snapshots, snapshot.job, to: count)
      await snapshots.subscribers.deliverDue()
      if case .job(let newest, let events) = subscription.next() {
        #expect(events == [.progress])
        received.append(newest.job.progress.completed)
      }
      try await Task.sleep(for: .milliseconds(2))
    }
    #expect(Double(received.count) <= begin.duration(to: .now).inSeconds * 10 + 1)
    #expect(received.count > 2)
    let deadline = ContinuousClock.now + patience
    while received.last != 300, ContinuousClock.now < deadline {
      await snapshots.subscribers.deliverDue()
      if case .job(let newest, _) = subscription.next() {
        received.append(newest.job.progress.completed)
      }
      try await Task.sleep(for: .milliseconds(2))
    }
    #expect(received.last == 300)
  }

  @Test(
    "progress is delivered less often if more streams follow more jobs",
    arguments: [
      (0, Duration.milliseconds(100)), (1_000, .milliseconds(100)), (3_000, .milliseconds(300)),
      (50_000, .seconds(5)), (216_000, .seconds(5)), (Int.max, .seconds(5)),
    ])
  func pace(events: Int, interval: Duration) {
    #expect(ProgressPace.interval(events: events) == interval)
  }

  @Test("with many streams and jobs, progress is delayed and a phase is not")
  func crowded() async throws {
    let (snapshots, first) = try snapshots()
    let moment = Timestamp(milliseconds: 0)
    var jobs: [Job] = []
    var pins: [OneJobSubscription] = []
    for low in 1...100 {
      var job = Job(
        NewJob(submission: first.job.submission), id: JobID(high: 1, low: UInt64(low)),
        owner: Workshop.me.owner, createdAt: moment)
      job.start(at: moment)
      snapshots.publish(job)
      jobs.append(job)
      pins.append(
        snapshots.subscribers.subscribe(
          to: JobSnapshot(job), seen: job.version, holds: false, for: Workshop.me))
    }
    let streams = (0..<199).map { _ in
      snapshots.subscribers.subscribe(SubscriptionQuery(caller: Workshop.me)) { moment }
    }
    for job in jobs { advance(snapshots, job, to: 1) }
    let before = ContinuousClock.now
    #expect(await snapshots.subscribers.deliverDue() == nil, "the first one is delivered at once")
    let after = ContinuousClock.now
    for job in jobs { advance(snapshots, job, to: 2) }
    let next = try #require(await snapshots.subscribers.deliverDue())
    // 199 streams with 100 jobs, and 100 streams with one job: 20,000 events.
    #expect(next >= before + .seconds(2) && next <= after + .seconds(2))
    guard case .job(let progress, _) = pins[1].next() else {
      Issue.record("the first progress was not delivered")
      return
    }
    #expect(progress.job.progress.completed == 1)
    var ended = try #require(snapshots.peek(jobs[0].id)?.job)
    _ = ended.cancel(at: moment, keptFor: .zero)
    snapshots.publish(ended)
    await snapshots.subscribers.deliverDue()
    guard case .job(let newest, let events) = pins[0].next() else {
      Issue.record("the end is delayed")
      return
    }
    #expect(newest.job.phase == .cancelled && events.contains(.phase))
    withExtendedLifetime(streams) {}
  }

  @Test("delayed progress is delivered without another change")
  func late() async throws {
    let (snapshots, snapshot) = try snapshots()
    let subscription = snapshots.subscribers.subscribe(
      to: snapshot, seen: snapshot.job.version, holds: false, for: Workshop.me)
    let delivery = Task { await snapshots.subscribers.run() }
    defer { delivery.cancel() }
    for count in 1...3 {
      advance(snapshots, snapshot.job, to: count)
      advance(snapshots, snapshot.job, to: 10 * count)
      guard case .job(var newest, _) = try await nextUpdate(subscription) else {
        Issue.record("no update arrived")
        return
      }
      while newest.job.progress.completed < 10 * count {
        guard case .job(let newer, let events) = try await nextUpdate(subscription) else {
          Issue.record("there is no further update")
          return
        }
        #expect(events == [.progress])
        newest = newer
      }
    }
  }

  /// The event that ends a long poll.
  enum WaitEnd: CaseIterable {
    case met, removed, purged, closed, late, cancelled
  }

  @Test(
    "a long poll ends with its condition, its job, the service, its deadline or its task",
    arguments: WaitEnd.allCases)
  func wait(end: WaitEnd) async throws {
    let (snapshots, snapshot) = try snapshots()
    let delivery = Task { await snapshots.subscribers.run() }
    defer { delivery.cancel() }
    let id = snapshot.job.id
    let deadline = ContinuousClock.now + (end == .late ? .milliseconds(20) : .seconds(600))
    let poll = Task { await snapshots.wait(for: .finished, of: id, until: deadline) }
    if end != .late { try await until { snapshots.subscribers.jobs == [id] } }
    advance(snapshots, snapshot.job, to: 1)
    switch end {
    case .met:
      var job = try #require(snapshots.peek(id)?.job)
      _ = job.cancel(at: job.createdAt, keptFor: .zero)
      snapshots.publish(job)
    case .removed: snapshots.remove([id])
    case .purged: snapshots.purge(id)
    case .closed: snapshots.close()
    case .late: break
    case .cancelled: poll.cancel()
    }
    await poll.value
    try await until { snapshots.subscribers.jobs.isEmpty }
  }

  @Test("a subscription to another owner's job fails")
  func foreign() async throws {
    try await Workshop.open { shop in
      let id = try await shop.submit(url)
      let other = Caller(owner: Owner("other"), isAdmin: false)
      await #expect(throws: JobsError.unknownJob) {
        try await shop.engine.subscribe(to: id, for: other, seen: nil, cancelsOnDisconnect: true)
      }
    }
  }

  @Test("a subscription ends when the job is purged and when the service stops")
  func gone() async throws {
    var last: (any JobSubscription)?
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      let subscription = try await shop.engine.subscribe(
        to: id, for: Workshop.me, seen: nil, cancelsOnDisconnect: false)
      _ = try await nextUpdate(subscription)
      try await shop.engine.purge(id, for: Workshop.me)
      _ = try await readAll(subscription)
      let other = try await shop.submit(url)
      last = try await shop.engine.subscribe(
        to: other, for: Workshop.me, seen: nil, cancelsOnDisconnect: true)
    }
    _ = try await readAll(try #require(last))
  }

  @Test("an unfinished job is cancelled when the last subscription that holds it ends")
  func cancels() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      func subscribe(_ cancels: Bool) async throws -> any JobSubscription {
        try await shop.engine.subscribe(
          to: id, for: Workshop.me, seen: nil, cancelsOnDisconnect: cancels)
      }
      var subscribers = [
        try await subscribe(true), try await subscribe(true), try await subscribe(false),
      ]
      subscribers.removeLast()
      subscribers.removeLast()
      // Ended subscriptions are processed before this later change.
      _ = try await shop.engine.edit(id, for: Workshop.me, priority: .high, tags: nil)
      #expect(try await shop.engine.job(id, for: Workshop.me).job.phase == .loading)
      subscribers.removeLast()
      #expect(try await shop.finished(id).phase == .cancelled)
    }
  }

  @Test("a subscription that released the job does not cancel it")
  func letsGoOn() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      shop.fetcher.answer("http://b.example/", with: .hangs(after: ok))
      let (id, other) = (try await shop.submit(url), try await shop.submit("http://b.example/"))
      for (id, goesOn) in [(id, true), (other, false)] {
        let subscription = try await shop.engine.subscribe(
          to: id, for: Workshop.me, seen: nil, cancelsOnDisconnect: true)
        if goesOn { subscription.keepJobRunning() }
      }
      // Subscriptions are processed in the order of their ends.
      #expect(try await shop.finished(other).phase == .cancelled)
      #expect(try await shop.engine.job(id, for: Workshop.me).job.phase.isFinished == false)
    }
  }
}

@Suite("A subscription to all jobs", .timeLimit(.minutes(15)))
struct ManyJobsSubscriptionTests {
  private let url = "http://a.example/x.png"
  private func query(_ adjust: (inout SubscriptionQuery) -> Void = { _ in }) -> SubscriptionQuery {
    var query = SubscriptionQuery(caller: Workshop.me)
    adjust(&query)
    return query
  }

  @Test("a new subscription receives unfinished jobs first, then each change once")
  func fresh() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      _ = try await shop.finished(shop.submit(url))
      shop.fetcher.answer("http://b.example/", with: .hangs(after: ok))
      let hanging = try await shop.submit("http://b.example/")
      try await until {
        try await shop.engine.job(hanging, for: Workshop.me).job.progress.completed > 0
      }
      let subscription = shop.engine.subscribe(query())
      #expect(try await readAll(subscription) == ["phase loading"])
      let next = try await shop.submit(url) { $0.cacheMode = .noStore }
      _ = try await shop.finished(next)
      var received: [String] = []
      while received.last != "phase success" { received += try await readAll(subscription) }
      #expect(received.filter { $0 == "phase success" || $0 == "image success" }.count == 2)
    }
  }

  @Test("a subscription that resumes receives every end that it missed")
  func comesBack() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      var ids: Set<JobID> = []
      for _ in 0..<250 {
        ids.insert(try await shop.submit(url) { $0.cacheMode = .noStore })
      }
      for id in ids { _ = try await shop.finished(id) }
      func ends(since moment: Timestamp?) async throws -> Set<JobID> {
        let subscription = shop.engine.subscribe(query { $0.seenUntil = moment })
        var found: Set<JobID> = []
        while case .job(let snapshot, let events) = try await nextUpdate(subscription) {
          #expect(events == [.phase, .image])
          found.insert(snapshot.job.id)
        }
        return found
      }
      #expect(try await ends(since: nil) == [])
      #expect(try await ends(since: Timestamp(milliseconds: 0)) == ids)
      #expect(try await ends(since: shop.clock.now) == ids)
      #expect(try await ends(since: shop.clock.now + .seconds(61)) == [])
    }
  }

  @Test("a subscription receives only jobs that it may see and that match its query")
  func filtered() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let other = shop.engine.subscribe(
        SubscriptionQuery(caller: Caller(owner: Owner("other"), isAdmin: false)))
      let admin = shop.engine.subscribe(
        SubscriptionQuery(caller: Caller(owner: Owner("root"), isAdmin: true)))
      let successes = shop.engine.subscribe(query { $0.phases = [.success] })
      let tagged = shop.engine.subscribe(query { $0.tag = "x" })
      for subscription in [other, admin, successes, tagged] {
        #expect(try await readAll(subscription) == [])
      }
      let plain = try await shop.submit(url)
      _ = try await shop.finished(plain)
      let new = NewJob(
        submission: Submission(source: .url(SourceURL(url)!, lowData: nil)), tags: ["x"])
      let id = try await shop.engine.submit([new], by: Workshop.me, key: nil)[0].id
      _ = try await shop.finished(id)
      func ids(_ subscription: any JobSubscription, upTo last: JobID) async throws -> [JobID] {
        var found: [JobID] = []
        while true {
          guard case .job(let snapshot, _) = try await nextUpdate(subscription) else { continue }
          if found.last != snapshot.job.id { found.append(snapshot.job.id) }
          if snapshot.job.id == last, snapshot.job.phase == .success { return found }
        }
      }
      #expect(try await ids(admin, upTo: id).contains(plain))
      #expect(Set(try await ids(successes, upTo: id)) == [plain, id])
      #expect(try await ids(tagged, upTo: id) == [id])
      guard case .nothing = other.next() else {
        Issue.record("another owner's job was delivered")
        return
      }
    }
  }

  @Test("a subscription that is too slow reads the jobs again and misses no end")
  func tooSlow() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let subscription = shop.engine.subscribe(query())
      #expect(try await readAll(subscription) == [])
      let new = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      var ids: Set<JobID> = []
      for _ in 0..<3 {
        let jobs = Array(repeating: new, count: ManyJobsSubscription.maxPending / 2)
        ids.formUnion(
          try await shop.engine.submit(jobs, by: Workshop.me, key: nil).map(\.id))
      }
      for id in ids { _ = try await shop.finished(id) }
      var ended: Set<JobID> = []
      while ended.count < ids.count {
        guard case .job(let snapshot, let events) = try await nextUpdate(subscription) else {
          continue
        }
        if snapshot.job.phase == .success, events.contains(.phase) { ended.insert(snapshot.job.id) }
      }
      #expect(ended == ids)
    }
  }

  /// Stores failed jobs, oldest first, without an event.
  private func fill(
    _ shop: Workshop, _ count: Int, _ adjust: (inout Submission) -> Void = { _ in }
  ) async throws -> [JobID] {
    var submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
    adjust(&submission)
    let moment = shop.clock.now
    let jobs = (1...count).map { number in
      var job = Job(
        NewJob(submission: submission), id: JobID(high: 1, low: UInt64(number)),
        owner: Workshop.me.owner, createdAt: moment)
      job.fail(.internal, at: moment, keptFor: .seconds(3_600))
      return job
    }
    _ = try await shop.store.submit(jobs, key: nil, capacity: .max)
    return jobs.map(\.id)
  }

  @Test("a page of long jobs holds few of them, and all are delivered")
  func longJobs() async throws {
    try await Workshop.open { shop in
      let long = SourceURL("http://b.example/" + String(repeating: "x", count: 8_000))!  // legal
      let ids = try await fill(shop, 20) { $0.alternatives = Array(repeating: long, count: 5) }
      let subscription = try #require(
        shop.engine.subscribe(query { $0.seenUntil = Timestamp(milliseconds: 0) })
          as? ManyJobsSubscription)
      var (received, places): ([JobID], Set<JobID?>) = ([], [])
      while case .job(let snapshot, _) = try await nextUpdate(subscription) {
        received.append(snapshot.job.id)
        // The position of the next page stays the same while a page is being delivered.
        places.insert(subscription.nextPage?.before)
      }
      #expect(received == Array(ids.reversed()))
      #expect(places.count == 3, "seven jobs of 40 kB fit into 256 KiB")
    }
  }

  @Test("a subscription continues after a page of unreadable jobs")
  func unreadable() async throws {
    try await Workshop.open { shop in
      let ids = try await fill(shop, 150)
      try await shop.store.spoil(ids.dropFirst())
      let subscription = shop.engine.subscribe(query { $0.seenUntil = Timestamp(milliseconds: 0) })
      #expect(try await readAll(subscription) == ["phase failure"])
    }
  }

  @Test(
    "a subscription is up to date as far as events arrived, and reads again what may be missing")
  func lostEvents() async throws {
    let snapshots = JobSnapshots(capacity: 10, membership: Membership(store: MemoryJobStore()))
    let clock = ManualClock()
    let start = clock.now
    let subscription = snapshots.subscribers.subscribe(query(), now: { clock.now })
    func caughtUp() throws -> Timestamp {
      let listing = try #require(subscription.nextPage)
      subscription.addPage([], of: listing, next: nil)
      guard case .caughtUp(let moment) = subscription.next() else { throw NoUpdate() }
      return moment
    }
    snapshots.subscribers.recordReceived(until: start + .seconds(1))
    clock.advance(by: .seconds(600))
    #expect(try caughtUp() == start + .seconds(1))
    snapshots.subscribers.relist(after: .milliseconds(400))
    #expect(subscription.nextPage?.since == start + .milliseconds(600))
    snapshots.subscribers.recordReceived(until: clock.now)
    #expect(try caughtUp() == clock.now)
    snapshots.subscribers.relist(after: .seconds(3_600))
    #expect(subscription.nextPage?.since == start, "it does not ask for jobs that ended before")
  }

  @Test("pages of jobs are read in round robin between owners, however many streams each has")
  func turns() {
    let snapshots = JobSnapshots(capacity: 10, membership: Membership(store: MemoryJobStore()))
    let subscribers = snapshots.subscribers
    let clock = ManualClock()
    let subscriptions = ["a", "a", "a", "b", "c"].map { name in
      subscribers.subscribe(
        SubscriptionQuery(caller: Caller(owner: Owner(name), isAdmin: false)),
        now: { clock.now })
    }
    for subscription in subscriptions { _ = subscription.next() }
    func next() -> String? { subscribers.nextPageRequest()?.query.caller.owner.name }
    #expect((0..<3).map { _ in next() } == ["a", "b", "c"])
    // A subscription that continues waits behind its owner's other ones.
    subscribers.requestPage(for: subscriptions[0])
    subscribers.requestPage(for: subscriptions[4])
    #expect((0..<5).map { _ in next() } == ["a", "c", "a", "a", nil])
  }

  @Test("a page of an abandoned listing is ignored, however similar the new one is")
  func stalePage() async throws {
    let snapshots = JobSnapshots(capacity: 10, membership: Membership(store: MemoryJobStore()))
    let start = Timestamp(milliseconds: 1)
    func job(_ number: Int) -> Job {
      var job = Job(
        NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil))),
        id: JobID(high: 1, low: UInt64(number)), owner: Workshop.me.owner, createdAt: start)
      job.start(at: start)
      return job
    }
    let subscription = snapshots.subscribers.subscribe(
      query { $0.seenUntil = start }, now: { start })
    let listing = try #require(subscription.nextPage)
    subscription.deliver(
      (0...ManyJobsSubscription.maxPending).map {
        Change(
          snapshot: JobSnapshot(job($0)), events: JobEvents(from: nil, to: job($0)))
      })
    subscription.addPage([JobSnapshot(job(1))], of: listing, next: nil)
    guard case .nothing = subscription.next(), let next = subscription.nextPage else {
      Issue.record("an outdated page was delivered")
      return
    }
    subscription.addPage([JobSnapshot(job(2))], of: next, next: nil)
    #expect(try await readAll(subscription) == ["phase loading"])
  }
}
