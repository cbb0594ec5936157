import Synchronization
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

/// Asks a listener until it has something to say or nothing more.
private func hear(_ listener: any JobListener) async throws -> JobNews {
  let deadline = ContinuousClock.now + .seconds(50)
  while ContinuousClock.now < deadline {
    let news = listener.next()
    if case .nothing = news {} else { return news }
    try await Task.sleep(for: .milliseconds(1))
  }
  throw Unheard()
}

private struct Unheard: Error {}

/// What was said, up to the end or the word that all was said: `phase loading`.
private func hearAll(_ listener: any JobListener) async throws -> [String] {
  var all: [String] = []
  while case .job(let snapshot, let events) = try await hear(listener) {
    all += events.map { "\($0) \(snapshot.job.phase)" }
  }
  return all
}

private final class Count: Sendable {
  let value = Atomic(0)
  func up() { value.add(1, ordering: .relaxed) }
}

@Suite("One who listens to a job", .timeLimit(.minutes(2)))
struct ListenerTests {
  private let url = "http://a.example/x.png"

  @Test("hears how it is, what happens, and its end")
  func wholeLife() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: Array(ok[..<4])))
      let id = try await shop.submit(url)
      let listener = try await shop.engine.listen(
        to: id, for: Workshop.me, told: nil, cancelsAtLeaving: false)
      guard case .job(let first, let events) = try await hear(listener) else {
        Issue.record("nothing is heard of the job")
        return
      }
      #expect(events == [.phase] && first.job.id == id)
      try await until {
        try await shop.engine.job(id, for: Workshop.me).job.progress.completed == 4
      }
      _ = try await shop.engine.cancel(id, for: Workshop.me)
      let rest = try await hearAll(listener)
      #expect(rest.last == "phase cancelled")
      guard case .end = listener.next() else {
        Issue.record("it goes on after the end")
        return
      }
    }
  }

  /// A board with one loading job on it.
  private func board() throws -> (JobBoard, JobSnapshot) {
    let board = JobBoard(capacity: 10)
    var job = Job(
      NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil))),
      id: JobID(high: 1, low: 1), owner: Workshop.me.owner, createdAt: Timestamp(milliseconds: 0))
    job.start(at: job.createdAt)
    return (board, try #require(board.publish(job)))
  }

  private func advance(_ board: JobBoard, _ job: Job, to count: Int) {
    var report = RunReport(of: job)
    report.progress.completed = count
    board.report(job.id, report)
  }

  @Test("hears nothing twice, and is woken for nothing but news")
  func lastHeard() async throws {
    let (board, snapshot) = try board()
    let listener = board.listeners.listen(
      to: snapshot, told: snapshot.job.version, holds: false, for: Workshop.me)
    let woken = Count()
    listener.onNews { woken.up() }
    var job = snapshot.job
    _ = job.edit(priority: .high, tags: ["x"])
    board.publish(job)
    await board.listeners.passOnDue()
    guard case .nothing = listener.next() else {
      Issue.record("what was heard is said again")
      return
    }
    #expect(woken.value.load(ordering: .relaxed) == 0)
    _ = job.cancel(at: job.createdAt, keptFor: .zero)
    board.publish(job)
    await board.listeners.passOnDue()
    #expect(woken.value.load(ordering: .relaxed) == 1)
    #expect(try await hearAll(listener) == ["phase cancelled"])
  }

  @Test("a slow one hears of many changes at once, and the newest state")
  func coalesced() async throws {
    let (board, snapshot) = try board()
    let listener = board.listeners.listen(
      to: snapshot, told: snapshot.job.version, holds: false, for: Workshop.me)
    for count in 1...100 {
      advance(board, snapshot.job, to: count)
      await board.listeners.passOnDue()
    }
    var job = try #require(board.peek(snapshot.job.id)?.job)
    job.putBack()
    board.publish(job)
    await board.listeners.passOnDue()
    guard case .job(let newest, let events) = listener.next() else {
      Issue.record("nothing is heard of the job")
      return
    }
    #expect(events == [.phase, .progress])
    #expect(newest.job == job && newest.job.progress.completed == 100)
    guard case .nothing = listener.next() else {
      Issue.record("there is more")
      return
    }
  }

  @Test("hears of progress at most ten times a second, and of the last one always")
  func paced() async throws {
    let (board, snapshot) = try board()
    let listener = board.listeners.listen(
      to: snapshot, told: snapshot.job.version, holds: false, for: Workshop.me)
    let begin = ContinuousClock.now
    var heard: [Int] = []
    for count in 1...300 {
      advance(board, snapshot.job, to: count)
      await board.listeners.passOnDue()
      if case .job(let newest, let events) = listener.next() {
        #expect(events == [.progress])
        heard.append(newest.job.progress.completed)
      }
      try await Task.sleep(for: .milliseconds(2))
    }
    #expect(Double(heard.count) <= begin.duration(to: .now).inSeconds * 10 + 1)
    #expect(heard.count > 2)
    let deadline = ContinuousClock.now + .seconds(60)
    while heard.last != 300, ContinuousClock.now < deadline {
      await board.listeners.passOnDue()
      if case .job(let newest, _) = listener.next() { heard.append(newest.job.progress.completed) }
      try await Task.sleep(for: .milliseconds(2))
    }
    #expect(heard.last == 300)
  }

  @Test("does not hear of another owner's job")
  func foreign() async throws {
    try await Workshop.open { shop in
      let id = try await shop.submit(url)
      let other = Caller(owner: Owner("other"), isAdmin: false)
      await #expect(throws: JobsError.unknownJob) {
        try await shop.engine.listen(to: id, for: other, told: nil, cancelsAtLeaving: true)
      }
    }
  }

  @Test("has done when the job is purged, and when the service stops")
  func gone() async throws {
    var last: (any JobListener)?
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      let listener = try await shop.engine.listen(
        to: id, for: Workshop.me, told: nil, cancelsAtLeaving: false)
      _ = try await hear(listener)
      try await shop.engine.purge(id, for: Workshop.me)
      _ = try await hearAll(listener)
      let other = try await shop.submit(url)
      last = try await shop.engine.listen(
        to: other, for: Workshop.me, told: nil, cancelsAtLeaving: true)
    }
    _ = try await hearAll(try #require(last))
  }

  @Test("takes an unfinished job along when it is the last to go that said so")
  func cancels() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      func listen(_ cancels: Bool) async throws -> any JobListener {
        try await shop.engine.listen(
          to: id, for: Workshop.me, told: nil, cancelsAtLeaving: cancels)
      }
      var listeners = [try await listen(true), try await listen(true), try await listen(false)]
      listeners.removeLast()
      listeners.removeLast()
      // Whoever left has been heard of by the time that a later change is.
      _ = try await shop.engine.edit(id, for: Workshop.me, priority: .high, tags: nil)
      #expect(try await shop.engine.job(id, for: Workshop.me).job.phase == .loading)
      listeners.removeLast()
      #expect(try await shop.finished(id).phase == .cancelled)
    }
  }
}

@Suite("One who listens to all jobs", .timeLimit(.minutes(2)))
struct ManyJobsListenerTests {
  private let url = "http://a.example/x.png"
  private func query(_ adjust: (inout ListeningQuery) -> Void = { _ in }) -> ListeningQuery {
    var query = ListeningQuery(caller: Workshop.me)
    adjust(&query)
    return query
  }

  @Test("hears of those under way, then of what changes, once each")
  func fresh() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      _ = try await shop.finished(shop.submit(url))
      shop.fetcher.answer("http://b.example/", with: .hangs(after: ok))
      let hanging = try await shop.submit("http://b.example/")
      try await until {
        try await shop.engine.job(hanging, for: Workshop.me).job.progress.completed > 0
      }
      let listener = shop.engine.listen(query())
      #expect(try await hearAll(listener) == ["phase loading"])
      let next = try await shop.submit(url) { $0.cacheMode = .noStore }
      _ = try await shop.finished(next)
      var heard: [String] = []
      while heard.last != "phase success" { heard += try await hearAll(listener) }
      #expect(heard.filter { $0 == "phase success" || $0 == "image success" }.count == 2)
    }
  }

  @Test("that comes back hears of each end it has missed")
  func comesBack() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      var ids: Set<JobID> = []
      for _ in 0..<250 {
        ids.insert(try await shop.submit(url) { $0.cacheMode = .noStore })
      }
      for id in ids { _ = try await shop.finished(id) }
      func ends(since moment: Timestamp?) async throws -> Set<JobID> {
        let listener = shop.engine.listen(query { $0.toldUntil = moment })
        var found: Set<JobID> = []
        while case .job(let snapshot, let events) = try await hear(listener) {
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

  @Test("hears of those alone that it may see and asked for")
  func filtered() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let other = shop.engine.listen(
        ListeningQuery(caller: Caller(owner: Owner("other"), isAdmin: false)))
      let admin = shop.engine.listen(
        ListeningQuery(caller: Caller(owner: Owner("root"), isAdmin: true)))
      let successes = shop.engine.listen(query { $0.phases = [.success] })
      let tagged = shop.engine.listen(query { $0.tag = "x" })
      for listener in [other, admin, successes, tagged] {
        #expect(try await hearAll(listener) == [])
      }
      let plain = try await shop.submit(url)
      _ = try await shop.finished(plain)
      let new = NewJob(
        submission: Submission(source: .url(SourceURL(url)!, lowData: nil)), tags: ["x"])
      let id = try await shop.engine.submit([new], by: Workshop.me.owner, key: nil)[0].id
      _ = try await shop.finished(id)
      func ids(_ listener: any JobListener, upTo last: JobID) async throws -> [JobID] {
        var found: [JobID] = []
        while true {
          guard case .job(let snapshot, _) = try await hear(listener) else { continue }
          if found.last != snapshot.job.id { found.append(snapshot.job.id) }
          if snapshot.job.id == last, snapshot.job.phase == .success { return found }
        }
      }
      #expect(try await ids(admin, upTo: id).contains(plain))
      #expect(Set(try await ids(successes, upTo: id)) == [plain, id])
      #expect(try await ids(tagged, upTo: id) == [id])
      guard case .nothing = other.next() else {
        Issue.record("another owner's job is told")
        return
      }
    }
  }

  @Test("that is too slow begins anew, and misses no end either")
  func tooSlow() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let listener = shop.engine.listen(query())
      #expect(try await hearAll(listener) == [])
      let new = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      var ids: Set<JobID> = []
      for _ in 0..<3 {
        let jobs = Array(repeating: new, count: ManyJobsListener.maxPending / 2)
        ids.formUnion(
          try await shop.engine.submit(jobs, by: Workshop.me.owner, key: nil).map(\.id))
      }
      for id in ids { _ = try await shop.finished(id) }
      var ended: Set<JobID> = []
      while ended.count < ids.count {
        guard case .job(let snapshot, let events) = try await hear(listener) else { continue }
        if snapshot.job.phase == .success, events.contains(.phase) { ended.insert(snapshot.job.id) }
      }
      #expect(ended == ids)
    }
  }
}
