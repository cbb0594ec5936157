import Jobs
import TestSupport
import Testing

@Suite("Webhook messages")
struct MessageTests {
  private static func job(
    _ number: Int64, to host: String = "a.example",
    _ events: Set<WebhookEvent> = WebhookEvent.jobEnds, owner: String = "anna"
  ) -> Job {
    let plain = Job.sample(number, owner: owner)
    var submission = plain.submission
    submission.webhook = Webhook(url: SourceURL("https://\(host)/hook")!, events: events)
    return Job(
      id: plain.id, owner: plain.owner, submission: submission, priority: .normal, tags: [],
      createdAt: plain.createdAt)
  }

  private static func cancel(_ job: inout Job) -> Bool {
    job.cancel(at: .at(5), keptFor: .seconds(9))
  }

  private static func taken(status: Int? = 200, at moment: Int64 = 20) -> WebhookAnswer {
    WebhookAnswer(
      at: .at(moment), time: .zero, status: status,
      error: status == nil ? FetchError.stalled(seconds: 1) : nil)
  }

  @Test(
    "messages are written by every operation that finishes a job, for the requested events",
    arguments: StoreAdapter.allCases)
  func written(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let (cancelled, completed, unwanted) = (Self.job(1), Self.job(2), Self.job(3, [.jobFailure]))
    var answered = Self.job(4)
    answered.start(at: .at(4))
    answered.fail(.notCached, at: .at(6), keptFor: .seconds(9))
    _ = try await store.submit(cancelled, completed, unwanted, answered, .sample(5))
    #expect(try await store.base.messages(of: cancelled.id).isEmpty)
    for job in [cancelled, unwanted] { _ = try await store.update(job.id, under: nil, Self.cancel) }
    let claims = try await store.claim(1, at: .at(1_000)).jobs.map(\.claim)
    _ = try await store.base.complete(
      Completion(claims) {
        $0.fail(.notCached, at: .at(7), keptFor: .seconds(9))
        return true
      })

    let stored = try #require(try await store.base.messages(of: cancelled.id).first)
    #expect(
      stored.event == .jobCancelled && stored.url.host == "a.example" && stored.state == .pending)
    #expect(stored.moment == .at(5) && stored.nextTry == .at(5) && stored.owner == cancelled.owner)
    guard case .job(let subject) = stored.subject else {
      Issue.record("wrong subject")
      return
    }
    // A message contains only the source of the job's submission.
    let whole = try #require(try await store.job(cancelled.id))
    #expect(subject.id == whole.id && subject.phase == .cancelled && subject.finishedAt == .at(5))
    #expect(subject.submission == Submission(source: whole.submission.source))
    for job in [completed, answered] {
      #expect(try await store.base.messages(of: job.id).map(\.event) == [.jobFailure])
    }
    #expect(try await store.base.messages(of: unwanted.id).isEmpty)
    #expect(try await store.base.waitingMessages() == 3)
    let owner = cancelled.owner
    #expect(try await store.base.waitingMessages(of: owner, upTo: 9) == 3)
    #expect(try await store.base.waitingMessages(of: owner, upTo: 2) == 2)
    #expect(try await store.base.waitingMessages(of: Owner("nobody"), upTo: 9) == 0)

    // A later edit writes no message. Finishing the job again writes another one.
    _ = try await store.update(cancelled.id, under: nil) { $0.edit(priority: .high, tags: nil) }
    #expect(try await store.base.messages(of: cancelled.id) == [stored])
    _ = try await store.update(cancelled.id, under: nil) {
      $0.fetchAgain(at: .at(8), from: .regular)
    }
    _ = try await store.update(cancelled.id, under: nil, Self.cancel)
    let both = try await store.base.messages(of: cancelled.id)
    #expect(both.count == 2 && both[0] == stored && both[1].id != stored.id)
    await store.close()
  }

  @Test(
    "messages are due at once if the clock that planned them was set back by years",
    arguments: StoreAdapter.allCases)
  func clockBack(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let instance = try await store.instance
    let day: Int64 = 86_400_000
    let (near, far) = (Self.job(1), Self.job(2, to: "b.example"))
    _ = try await store.submit(near, far)
    for job in [near, far] { _ = try await store.update(job.id, under: nil, Self.cancel) }
    store.clock.set(.at(10))
    let request = MessageRequest(by: instance, sending: [], count: 9, perHost: 2)
    for var message in try await store.base.claimMessages(request).messages {
      let moment = message.host == "b.example" ? 38 * day : 37 * day
      message.recordAnswer(Self.taken(status: 500, at: moment), under: .standard, dice: 0)
      try await store.base.saveResult(message, by: instance)
    }
    let due = try await store.base.claimMessages(request)
    #expect(due.messages.map(\.host) == ["b.example"])
    #expect(due.nextDue == .at(37 * day + 5_000))
    await store.close()
  }

  @Test(
    "only the newest sent messages of a job are kept, in addition to unsent ones",
    arguments: StoreAdapter.allCases)
  func bounded(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let instance = try await store.instance
    let (job, most) = (Self.job(1), WebhookMessage.mostOfSubject)
    func end() async throws {
      _ = try await store.update(job.id, under: nil, Self.cancel)
      _ = try await store.update(job.id, under: nil) { $0.fetchAgain(at: .at(8), from: .regular) }
    }
    func send() async throws -> WebhookMessage? {
      let taken = try await store.base.claimMessages(
        MessageRequest(by: instance, sending: [], count: 9, perHost: 2))
      guard var message = taken.messages.first else { return nil }
      message.recordAnswer(Self.taken(), under: .standard, dice: 0)
      try await store.base.saveResult(message, by: instance)
      return message
    }
    _ = try await store.submit(job)
    store.clock.set(.at(10))
    try await end()
    let first = try #require(try await store.base.messages(of: job.id).first)
    for _ in 0..<most + 3 {
      #expect(try await send() != nil)
      try await end()
    }
    let newest = try await store.base.messages(of: job.id)
    #expect(newest.count == most && newest[0].id.number > first.id.number)
    #expect(newest.last?.state == .pending)
    #expect(newest.dropLast().allSatisfy { $0.state == .delivered })
    #expect(try jobs.count(of: "messages") == most + 1, "older messages are deleted")
    // All unsent messages are sent, even if newer ones follow.
    for _ in 0..<most + 3 { try await end() }
    #expect(try await store.base.messages(of: job.id).count == most)
    #expect(try await store.base.waitingMessages() == most + 4)
    #expect(try jobs.count(of: "messages") == 2 * most + 4)
    let all = try await store.base.messages(of: job.id).map(\.id)
    var sent = 0
    while try await send() != nil { sent += 1 }
    #expect(sent == most + 4)
    #expect(try await store.base.messages(of: job.id).map(\.id) == all)
    #expect(try jobs.count(of: "messages") == most)
    await store.close()
  }

  @Test(
    "a message is returned once when it is due, and again after a failed try",
    arguments: StoreAdapter.allCases)
  func taking(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let instance = try await store.instance
    func take(_ sending: WebhookMessage...) async throws -> ClaimedMessages {
      try await store.base.claimMessages(
        MessageRequest(by: instance, sending: Set(sending.map(\.id)), count: 9, perHost: 2))
    }
    let job = Self.job(1)
    _ = try await store.submit(job)
    #expect(try await take() == ClaimedMessages())
    store.clock.set(.at(10))
    _ = try await store.update(job.id, under: nil, Self.cancel)
    var message = try #require(try await take().messages.first)
    #expect(try await take(message).messages.isEmpty)

    message.recordAnswer(
      Self.taken(status: 500), under: WebhookSchedule(waits: [.seconds(60)]), dice: 0)
    try await store.base.saveResult(message, by: instance)
    let later = try await take()
    #expect(later.messages.isEmpty && later.nextDue == .at(60_020))
    store.clock.set(.at(60_020))
    #expect(try await take().messages == [message])
    // The answer was lost: the instance does not know that it holds the message.
    #expect(try await take().messages == [message])

    message.recordAnswer(Self.taken(), under: .standard, dice: 0)
    try await store.base.saveResult(message, by: instance)
    #expect(try await take() == ClaimedMessages())
    #expect(try await store.base.messages(of: job.id) == [message])
    #expect(message.state == .delivered && message.tries.map(\.status) == [500, 200])
    let again = try #require(try await store.base.sendAgain(of: job.id))
    #expect(again.id == message.id && again.state == .pending && again.nextTry == .at(60_020))
    #expect(try await take().messages == [again])
    #expect(try await store.base.sendAgain(of: Job.sample(7).id) == nil)
    await store.close()
  }

  @Test(
    "a message requested again during a try is sent again after it, whatever the result",
    arguments: StoreAdapter.allCases)
  func askedFor(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let instance = try await store.instance
    func take(_ sending: WebhookMessage...) async throws -> [WebhookMessage] {
      try await store.base.claimMessages(
        MessageRequest(by: instance, sending: Set(sending.map(\.id)), count: 9, perHost: 2)
      ).messages
    }
    let job = Self.job(1)
    _ = try await store.submit(job)
    _ = try await store.update(job.id, under: nil, Self.cancel)
    store.clock.set(.at(10))
    for status in [200, 410, 500] {
      if status != 200 { _ = try await store.base.sendAgain(of: job.id) }
      var message = try #require(try await take().first)
      #expect(try await store.base.sendAgain(of: job.id)?.nextTry == message.nextTry)
      #expect(try await take(message).isEmpty)
      message.recordAnswer(Self.taken(status: status), under: .standard, dice: 0)
      try await store.base.saveResult(message, by: instance)

      var again = try #require(try await take().first)
      #expect(again.id == message.id && again.state == .pending && !again.isAskedFor)
      #expect(again.tries == message.tries && again.nextTry == .at(10))
      again.recordAnswer(Self.taken(), under: .standard, dice: 0)
      try await store.base.saveResult(again, by: instance)
      #expect(try await take().isEmpty)
      #expect(try await store.base.messages(of: job.id) == [again])
    }
    await store.close()
  }

  @Test(
    "at most two messages per host are sent at once, and other hosts do not wait",
    arguments: StoreAdapter.allCases)
  func hosts(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let instance = try await store.instance
    let busy = (0..<5).map { Self.job($0, to: "busy.example") }
    let others = (10..<13).map { Self.job($0, to: "other\($0).example") }
    _ = try await store.submit(busy + others, key: nil, capacity: .max)
    for job in busy + others { _ = try await store.update(job.id, under: nil, Self.cancel) }
    store.clock.set(.at(10))
    let first = try await store.base.claimMessages(
      MessageRequest(by: instance, sending: [], count: 99, perHost: 2))
    #expect(
      first.messages.map(\.host).sorted().prefix(3) == [
        "busy.example", "busy.example", "other10.example",
      ])
    #expect(first.messages.count == 5 && first.after == nil)
    let sending = Set(first.messages.map(\.id))
    let second = try await store.base.claimMessages(
      MessageRequest(by: instance, sending: sending, count: 9, perHost: 2))
    #expect(second.messages.isEmpty)

    // Another instance sends nothing to this host either.
    let other = try await store.base.register(for: .seconds(1_000))
    let third = try await store.base.claimMessages(
      MessageRequest(by: other, sending: [], count: 9, perHost: 2))
    #expect(third.messages.isEmpty)
    var done = first.messages.first { $0.host == "busy.example" }!
    done.recordAnswer(Self.taken(), under: .standard, dice: 0)
    try await store.base.saveResult(done, by: instance)
    let fourth = try await store.base.claimMessages(
      MessageRequest(by: other, sending: [], count: 9, perHost: 2))
    #expect(fourth.messages.map(\.host) == ["busy.example"])
    await store.close()
  }

  @Test(
    "all hosts are served in turn, however few messages are requested at once",
    arguments: StoreAdapter.allCases)
  func turns(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let instance = try await store.instance
    let all = (0..<300).map { Self.job($0, to: "host\(1_000 + $0).example") }
    _ = try await store.submit(all, key: nil, capacity: .max)
    for job in all { _ = try await store.update(job.id, under: nil, Self.cancel) }
    store.clock.set(.at(10))
    var (sending, after, looks): (Set<WebhookMessage.ID>, String?, Int) = ([], nil, 0)
    repeat {
      let taken = try await store.base.claimMessages(
        MessageRequest(by: instance, sending: sending, count: 200, perHost: 2, after: after))
      sending.formUnion(taken.messages.map(\.id))
      (after, looks) = (taken.after, looks + 1)
    } while after != nil && looks < 20
    #expect(sending.count == 300 && looks <= 5)
    await store.close()
  }

  @Test(
    "messages of an owner with a full share are skipped, and other owners do not wait",
    arguments: StoreAdapter.allCases)
  func owners(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let instance = try await store.instance
    let many: [Job] =
      (0..<40).map { Self.job($0, to: "host\(100 + $0).example") }
      + (40..<43).map { Self.job($0, to: "shared.example") }
    let other = Self.job(50, to: "shared.example", owner: "bert")
    _ = try await store.submit(many + [other], key: nil, capacity: .max)
    for job in many + [other] { _ = try await store.update(job.id, under: nil, Self.cancel) }
    store.clock.set(.at(10))
    var (taken, after): ([WebhookMessage], String?) = ([], nil)
    func request() -> MessageRequest {
      var shares = FairShare<Owner>()
      for message in taken { shares.acquireUnchecked(1, for: message.owner) }
      let owners = OwnerCapacity(
        shares, within: .keepingQuarter(of: 8, ofClient: 4), at: .at(10))
      return MessageRequest(
        by: instance, sending: Set(taken.map(\.id)), owners: owners,
        count: 8 - taken.count, perHost: 2, after: after)
    }
    for _ in 0..<5 {
      let some = try await store.base.claimMessages(request())
      taken += some.messages
      after = some.after
      if after == nil { break }
    }
    let others = taken.filter { $0.owner == other.owner }
    #expect(after == nil && taken.count == 5 && others.map(\.id.subject) == [other.id])

    // No other owner's messages are due, so no host is searched.
    var stored = try #require(others.first)
    stored.recordAnswer(
      Self.taken(status: 500), under: WebhookSchedule(waits: [.seconds(60)]), dice: 0)
    try await store.base.saveResult(stored, by: instance)
    (taken, after) = (taken.filter { $0.id != stored.id }, "host110.example")
    let none = try await store.base.claimMessages(request())
    #expect(none.messages.isEmpty && none.after == after && none.nextDue == stored.nextTry)
    await store.close()
  }

  @Test(
    "messages of a lost instance are sent by another one, and late results are ignored",
    arguments: StoreAdapter.allCases)
  func lost(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let lost = try await store.base.register(for: .seconds(10))
    let other = try await store.base.register(for: .seconds(1_000))
    let job = Self.job(1)
    _ = try await store.submit(job)
    _ = try await store.update(job.id, under: nil, Self.cancel)
    store.clock.set(.at(10))
    func take(_ instance: Instance) async throws -> [WebhookMessage] {
      try await store.base.claimMessages(
        MessageRequest(by: instance, sending: [], count: 9, perHost: 2)
      ).messages
    }
    var message = try #require(try await take(lost).first)
    #expect(try await take(other).isEmpty)
    store.clock.set(.at(20_000))
    _ = try await store.base.recoverExpired(99)
    #expect(try await take(other) == [message])
    let waiting = message
    message.recordAnswer(Self.taken(), under: .standard, dice: 0)
    try await store.base.saveResult(message, by: lost)
    #expect(try await store.base.messages(of: job.id) == [waiting])
    await #expect(throws: StoreError.leaseLost) { try await take(lost) }
    await store.close()
  }

  @Test(
    "messages survive a restart and the expiry of their job, but not a purge",
    arguments: StoreAdapter.allCases)
  func forgotten(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let (purged, expired, stored) = (
      Self.job(1), Self.job(2, to: "b.example"), Self.job(3, to: "c.example")
    )
    _ = try await jobs.store.submit(purged, expired, stored)
    for job in [purged, expired, stored] {
      _ = try await jobs.store.update(job.id, under: nil, Self.cancel)
    }
    let store = try await jobs.reopened()
    #expect(try await store.base.waitingMessages() == 3)
    _ = try await store.base.remove(purged.id) { _ in true }
    #expect(try await store.base.messages(of: purged.id).isEmpty)
    let instance = try await store.instance
    store.clock.set(.at(10))
    var taken = try await store.base.claimMessages(
      MessageRequest(by: instance, sending: [], count: 9, perHost: 2)
    ).messages.sorted { $0.host < $1.host }
    #expect(taken.map(\.id.subject) == [expired.id, stored.id])
    taken[1].recordAnswer(Self.taken(), under: .standard, dice: 0)
    try await store.base.saveResult(taken[1], by: instance)
    #expect(try await store.base.messages(of: stored.id).count == 1)

    store.clock.set(.at(20_000))
    #expect(try await store.base.expire(9).count == 2)
    #expect(try await store.base.messages(of: stored.id).isEmpty)
    #expect(try await store.base.messages(of: expired.id).count == 1)
    taken[0].recordAnswer(Self.taken(), under: .standard, dice: 0)
    try await store.base.saveResult(taken[0], by: instance)
    #expect(try await store.base.messages(of: expired.id).isEmpty)
    #expect(try await store.base.waitingMessages() == 0)
    await store.close()
  }
}
