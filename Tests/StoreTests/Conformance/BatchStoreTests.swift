import Jobs
import TestSupport
import Testing

@Suite("Storing batches")
struct BatchStoreTests {
  static let adapters: [StoreAdapter] = [.sqlite, .postgres]

  @Test("a batch counts its jobs by phase", arguments: adapters)
  func counts(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    #expect(try await store.base.open(batch, key: nil) == .opened)
    let lines = BatchLines.sample(batch, after: 0, lines: [1, 2, 4], rejected: [3], count: 5)
    guard case .accepted(let taken) = try await store.base.add(lines, to: batch.id, capacity: 3)
    else {
      Issue.record("not taken")
      return
    }
    #expect(taken.received == 5)
    #expect(taken.counts[.queued] == 3)
    #expect(taken.counts.rejected == 1)
    #expect(try await store.job(lines.jobs[0].id) == lines.jobs[0])

    let claimed = try await store.claim(2, at: .at(10)).jobs
    #expect(claimed.map { $0.job.batch?.line } == [1, 2])
    _ = try await store.reserve(.sample(1), bytes: 7, as: JobID(at: .at(9)), limit: .max / 2)
    _ = try await store.complete(
      Completion([claimed[0].claim]) {
        $0.succeed(with: .sample(1), bytes: 7, at: .at(20))
        return true
      })
    _ = try await store.complete(
      Completion([claimed[1].claim]) {
        $0.fail(.fetch(.timeout(seconds: 1)), at: .at(30), keptFor: .seconds(60))
        return true
      })
    var now = try #require(try await store.base.batch(batch.id))
    #expect(now.counts[.queued] == 1)
    #expect(now.counts[.success] == 1)
    #expect(now.counts.bytes == 7)
    #expect(now.counts.codes.map(\.code) == [.timeout])
    #expect(now.state == .receiving)

    _ = try await store.base.close(batch.id)
    #expect(try await store.remove(lines.jobs[2].id))
    now = try #require(try await store.base.batch(batch.id))
    #expect(now.counts[.cancelled] == 1)
    #expect(now.state == .finished)
    #expect(now.finishedAt != nil)
    try await store.audit()

    let reopened = try await jobs.reopened()
    #expect(try await reopened.base.batch(batch.id)?.counts == now.counts)
    _ = try await reopened.update(claimed[1].job.id, under: nil) {
      $0.fetchAgain(at: .at(40), from: .regular)
    }
    now = try #require(try await reopened.base.batch(batch.id))
    #expect(now.state == .running)
    #expect(now.counts.codes.isEmpty)
    try await reopened.audit()
    await reopened.close()
  }

  @Test("an image that replaces another one replaces its size in the count", arguments: adapters)
  func replaced(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: [1])
    _ = try await store.base.add(lines, to: batch.id, capacity: 9)
    let (job, claim) = try #require(await store.claimOne(at: .at(10)))
    for (number, bytes) in [(1, 7), (2, 70)] {
      _ = try await store.reserve(
        .sample(number), bytes: bytes, as: JobID(at: .at(9)), limit: .max / 2)
    }
    _ = try await store.complete(
      Completion([claim]) {
        $0.succeed(with: .sample(1), bytes: 7, at: .at(20))
        return true
      })
    _ = try await store.update(job.id, under: nil) {
      $0.replaceImage(with: .sample(.sample(2), bytes: 70), cache: nil)
      return true
    }
    let counts = try #require(try await store.base.batch(batch.id)).counts
    #expect(counts.bytes == 70 && counts[.success] == 1)
    try await store.audit()
    await store.close()
  }

  @Test("lines are added only after the received ones, all or none", arguments: adapters)
  func order(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let first = BatchLines.sample(batch, after: 0, lines: [1, 2])
    _ = try await store.base.add(first, to: batch.id, capacity: 9)
    for offset in [0, 1, 3] {
      let lines = BatchLines.sample(batch, after: offset, lines: [offset + 1])
      guard case .refused(let now) = try await store.base.add(lines, to: batch.id, capacity: 9)
      else {
        Issue.record("taken after \(offset)")
        return
      }
      #expect(now.received == 2)
    }
    let next = BatchLines.sample(batch, after: 2, lines: [3, 4])
    #expect(try await store.base.add(next, to: batch.id, capacity: 3) == .queueFull)
    #expect(try await store.base.batch(batch.id)?.received == 2)
    // Lines do not use the slots of single jobs.
    #expect(try await store.submit([.sample(50)], key: nil, capacity: 1) == .accepted)
    #expect(try await store.base.add(next, to: JobID(at: .at(7)), capacity: 9) == .unknown)
    _ = try await store.base.close(batch.id)
    guard case .refused = try await store.base.add(next, to: batch.id, capacity: 9) else {
      Issue.record("taken after the end")
      return
    }
    await store.close()
  }

  @Test(
    "a repeated key returns its batch, and a batch that never had a line is deleted with it",
    arguments: adapters)
  func keys(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    var key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    let batch = Batch.sample(1, key: "k")
    #expect(try await store.base.open(batch, key: key) == .opened)
    #expect(try await store.base.open(.sample(2, key: "k"), key: key) == .repeated(batch.id))
    key.fingerprint = .sample(2)
    #expect(try await store.base.open(.sample(2, key: "k"), key: key) == .keyReused)
    try await store.base.deleteUnused(batch.id, after: 0)
    #expect(try await store.base.batch(batch.id) == nil)
    #expect(try await store.base.open(.sample(2, key: "k"), key: key) == .opened)
    await store.close()
  }

  @Test("a batch stores the content that a repeated key is compared with", arguments: adapters)
  func content(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    for isOpen in [false, true] {
      var content = BatchContent()
      let batch = Batch(
        id: JobID(at: .at(isOpen ? 2 : 1)), owner: Owner("anna"), isOpen: isOpen, key: "k",
        retention: .seconds(60), content: content, createdAt: .at(1))
      #expect(try await store.base.open(batch, key: nil) == .opened)
      #expect(try await store.base.batch(batch.id)?.content == content)
      content.add("http://a/1".utf8, in: BatchContent.Context())
      let lines = BatchLines(after: 0, count: 1, content: content)
      guard case .accepted(let taken) = try await store.base.add(lines, to: batch.id, capacity: 9)
      else { throw StoreError.full }
      #expect(taken.content == content)
      _ = try await store.base.add(BatchLines(after: 1, count: 1), to: batch.id, capacity: 9)
      #expect(try await store.base.batch(batch.id)?.content == content)
      // The content of an open batch is complete once its first request has ended, as its lines
      // say.
      if !isOpen { content.complete() }
      #expect(try await store.base.close(batch.id)?.content == content)
      #expect(try await store.base.batch(batch.id)?.content == content)
    }
    await store.close()
  }

  @Test("the key of a purged batch returns it until both are deleted", arguments: adapters)
  func purgedKeys(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    for (number, name) in [(1 as Int64, "k"), (3, "l")] {
      let key = IdempotencyKey(owner: Owner("anna"), key: name, fingerprint: .sample(1))
      let (batch, next) = (Batch.sample(number, key: name), Batch.sample(number + 1, key: name))
      _ = try await store.base.open(batch, key: key)
      let lines = BatchLines.sample(batch, after: 0, lines: [1, 2])
      _ = try await store.base.add(lines, to: batch.id, capacity: 9)
      let withKey = name == "l"
      #expect(try await store.base.purge(batch.id, refusedAfter: withKey ? 2 : nil))
      // A known key is answered even if no further batch may be opened.
      let known = try await store.base.open(next, key: key, atMost: 0)
      #expect(known == (withKey ? .tooMany : .repeated(batch.id)))
      #expect(try await store.base.endStopped(9, keptFor: .seconds(60)).removed.count == 2)
      let later = try await store.base.open(next, key: key)
      #expect(later == (withKey ? .opened : .repeated(batch.id)))
    }
    try await store.audit()
    await store.close()
  }

  @Test("a refused batch that received further lines stays", arguments: adapters)
  func goneOnWith(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    let (batch, empty) = (Batch.sample(1, key: "k"), Batch.sample(2))
    _ = try await store.base.open(batch, key: key)
    let lines = BatchLines.sample(batch, after: 0, lines: [1, 2])
    _ = try await store.base.add(lines, to: batch.id, capacity: 9)
    #expect(try await store.base.purge(batch.id, refusedAfter: 1) == false)
    let closed = try await store.base.close(batch.id)
    #expect(closed?.state == .running)
    #expect(try await store.base.purge(batch.id, refusedAfter: 2) == false)
    #expect(try await store.base.batch(batch.id) == closed)
    #expect(try await store.base.open(.sample(3), key: key) == .repeated(batch.id))
    _ = try await store.base.open(empty, key: nil)
    try await store.base.deleteUnused(empty.id, after: 1)
    #expect(try await store.base.batch(empty.id)?.state == .receiving)
    _ = try await store.base.close(empty.id)
    try await store.base.deleteUnused(empty.id, after: 0)
    #expect(try await store.base.batch(empty.id)?.state == .finished)
    try await store.audit()
    await store.close()
  }

  @Test("a webhook is added to a batch even if the queue is full", arguments: adapters)
  func tellsWithoutPlace(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: [1, 2, 3])
    _ = try await store.base.add(lines, to: batch.id, capacity: 3)
    let webhook = Webhook(url: SourceURL("https://a.example/")!, events: [.batchFinished])
    let telling = BatchLines(after: 3, webhook: webhook)
    guard case .accepted(let now) = try await store.base.add(telling, to: batch.id, capacity: 1)
    else {
      Issue.record("not taken")
      return
    }
    #expect(now.webhook == webhook && now.received == 3)
    try await store.audit()
    await store.close()
  }

  @Test("an owner's number of unfinished batches is limited", arguments: adapters)
  func limit(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    #expect(try await store.base.open(.sample(1, key: "k"), key: key, atMost: 2) == .opened)
    #expect(try await store.base.open(.sample(2), key: nil, atMost: 2) == .opened)
    #expect(try await store.base.open(.sample(3), key: nil, atMost: 2) == .tooMany)
    let first = Batch.sample(1).id
    // A known key is answered in any case, and other owners' batches do not count.
    if case .repeated = try await store.base.open(.sample(4), key: key, atMost: 2) {
    } else {
      Issue.record("it is known")
    }
    #expect(try await store.base.open(.sample(5, owner: "ben"), key: nil, atMost: 2) == .opened)
    let batches = try await store.base.batches(
      BatchQuery(owner: Owner("anna"), now: .at(0), limit: 9)
    ).batches
    #expect(batches.count == 2 && first != batches[0].id)
    _ = try await store.base.close(batches[0].id)
    _ = try await store.base.finishBatches()
    #expect(try await store.base.open(.sample(6), key: nil, atMost: 2) == .opened)
    await store.close()
  }

  @Test(
    "a page with few matches among many lines is short, and the next page continues there",
    arguments: adapters)
  func fewOfMany(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let count = JobQuery.maxLines + 100
    let batch = try await Self.opened(count, in: store)
    try await Self.fail(try await store.claim(3, at: .at(10)).jobs, in: store)
    for phases: Set<Phase> in [[.failure], [.queued, .failure], [.success]] {
      var query = JobQuery(owner: nil, now: .at(1), limit: 2)
      (query.batch, query.phases) = (batch.id, phases)
      if phases.count > 1 { query.limit = 10_000 }
      let (lines, pages) = try await Self.turned(query, in: store)
      let expected =
        phases.count > 1 ? Array((1...count).reversed()) : phases == [.failure] ? [3, 2, 1] : []
      #expect(lines == expected)
      #expect(pages <= 3)
      #expect(pages > 1)
    }
    // Filters without an index read fewer lines per page. Each page continues where the previous
    // one ended.
    for isByHost in [false, true] {
      var query = JobQuery(owner: nil, now: .at(1), limit: 50)
      query.batch = batch.id
      if isByHost { query.host = "example.net" } else { query.code = .timeout }
      let (lines, pages) = try await Self.turned(query, in: store)
      #expect(lines == (isByHost ? [] : [3, 2, 1]))
      #expect(pages == (isByHost ? 9 : 2))
    }
    // Ids contain times: the first fifty lines were created before this moment.
    var query = JobQuery(owner: nil, now: .at(1), limit: 100)
    (query.batch, query.until) = (batch.id, .at(1_051))
    #expect(try await Self.turned(query, in: store).lines == Array((1...50).reversed()))
    await store.close()
  }

  /// Reads all pages of a batch's jobs.
  private static func turned(
    _ query: JobQuery, in store: StoreUnderTest
  ) async throws -> (lines: [Int?], pages: Int) {
    var query = query
    var (lines, pages): ([Int?], Int) = ([], 0)
    while true {
      let page = try await store.base.jobs(query)
      lines += page.jobs.map { $0.batch?.line }
      pages += 1
      guard page.hasMore, pages < 99 else { return (lines, pages) }
      query.before = try #require(page.last ?? page.jobs.last?.id)
    }
  }

  /// Opens a batch with this number of jobs.
  private static func opened(_ count: Int, in store: StoreUnderTest) async throws -> Batch {
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    for start in stride(from: 0, to: count, by: 1_000) {
      let numbers = Array(start + 1...min(count, start + 1_000))
      let lines = BatchLines.sample(batch, after: start, lines: numbers)
      _ = try await store.base.add(lines, to: batch.id, capacity: 99_999)
    }
    return batch
  }

  /// Fails claimed jobs.
  private static func fail(
    _ jobs: [(job: Job, claim: Claim)], in store: StoreUnderTest
  ) async throws {
    _ = try await store.complete(
      Completion(jobs.map(\.claim)) {
        $0.fail(.fetch(.timeout(seconds: 1)), at: .at(30), keptFor: .seconds(60))
        return true
      })
  }

  @Test("paging skips no job if few lines match", arguments: adapters)
  func rareLines(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = try await Self.opened(7, in: store)
    for claimed in try await store.claim(7, at: .at(10)).jobs {
      let isRare = [1, 2, 7].contains(claimed.job.batch?.line)
      _ = try await store.complete(
        Completion([claimed.claim]) {
          $0.fail(
            isRare ? .fetch(.timeout(seconds: 1)) : .internal, at: .at(30), keptFor: .seconds(60))
          return true
        })
    }
    var query = JobQuery(owner: nil, now: .at(1), limit: 2)
    (query.batch, query.code) = (batch.id, .timeout)
    let (found, pages) = try await Self.turned(query, in: store)
    #expect(found == [7, 2, 1] && pages == 2)
    await store.close()
  }

  @Test("paging continues correctly after the last job of a page was deleted", arguments: adapters)
  func goneLine(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = try await Self.opened(9, in: store)
    let claimed = try await store.claim(6, at: .at(10)).jobs
    try await Self.fail(claimed, in: store)
    var query = JobQuery(owner: nil, now: .at(1), limit: 4)
    query.batch = batch.id
    let page = try await store.base.jobs(query)
    #expect(page.jobs.map { $0.batch?.line } == [9, 8, 7, 6])
    let gone = claimed[5].job.id
    #expect(try await store.remove(gone))
    #expect(try await store.job(gone) == nil)
    query.before = gone
    for phases: Set<Phase> in [[], [.failure]] {
      query.phases = phases
      #expect(try await store.base.jobs(query).jobs.map { $0.batch?.line } == [5, 4, 3, 2])
    }
    await store.close()
  }

  @Test("results are returned in the order of the lines", arguments: adapters)
  func results(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let (batch, other) = (Batch.sample(1), Batch.sample(2))
    for batch in [batch, other] {
      _ = try await store.base.open(batch, key: nil)
      let lines = BatchLines.sample(batch, after: 0, lines: [1, 2, 4, 5, 6], rejected: [3])
      _ = try await store.base.add(lines, to: batch.id, capacity: 99)
    }
    for job in try await store.claim(20, at: .at(10)).jobs where job.job.batch?.line != 5 {
      _ = try await store.complete(
        Completion([job.claim]) {
          $0.fail(.fetch(.timeout(seconds: 1)), at: .at(30), keptFor: .seconds(60))
          return true
        })
    }
    var query = ResultQuery(batch.id, after: 0, through: 100)
    var found = try #require(try await store.base.results(query))
    #expect(found.lines.map(\.number) == [1, 2, 3, 4, 6])
    #expect(found.through == 6)
    query.isInOrder = true
    found = try #require(try await store.base.results(query))
    #expect(found.lines.map(\.number) == [1, 2, 3, 4])
    #expect(found.through == 4)
    (query.after, query.through, query.phases) = (1, 3, [.success])
    found = try #require(try await store.base.results(query))
    #expect(found.lines.map(\.number) == [3])
    query.withRejected = false
    #expect(try await store.base.results(query)?.lines == [])
    #expect(
      try await store.base.results(ResultQuery(JobID(at: .at(5)), after: 0, through: 1)) == nil)
    await store.close()
  }

  @Test(
    "a part of the results ends with the line that reaches the size limit",
    arguments: adapters)
  func longResults(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let long = "https://example.org/" + String(repeating: "x", count: 8_000)
    // First all jobs before all rejected lines, then alternating.
    for (number, taken) in [Array(1...6), [1, 3, 5, 7, 9, 11]].enumerated() {
      let batch = Batch.sample(Int64(number))
      _ = try await store.base.open(batch, key: nil)
      let made = taken.map { line in
        Job(
          id: JobID(at: .at(batch.createdAt.milliseconds % 1_000 * 1_000 + Int64(line))),
          owner: batch.owner,
          submission: Submission(source: .url(SourceURL("\(long)\(line)")!, lowData: nil)),
          priority: .normal, tags: [], createdAt: batch.createdAt,
          batch: BatchPosition(id: batch.id, line: line))
      }
      let rejected = Set(1...12).subtracting(taken).sorted().map {
        RejectedLine(line: $0, url: long, code: "invalid_url", detail: "none")
      }
      let lines = BatchLines(after: 0, count: 12, jobs: made, rejected: rejected)
      _ = try await store.base.add(lines, to: batch.id, capacity: 99)
      for job in try await store.claim(20, at: .at(10_000)).jobs {
        _ = try await store.complete(
          Completion([job.claim]) {
            $0.fail(.fetch(.timeout(seconds: 1)), at: .at(10_001), keptFor: .seconds(60))
            return true
          })
      }
      for (bytes, most) in [(1, 1), (20_000, 6), (1 << 20, 12)] {
        var query = ResultQuery(batch.id, after: 0, through: 99)
        (query.maxBytes, query.isInOrder) = (bytes, bytes > 1)
        var parts: [[Int]] = []
        while query.after < 12, parts.count <= 12 {
          let results = try #require(try await store.base.results(query))
          parts.append(results.lines.map(\.number))
          #expect(results.through == parts.last?.last)
          query.after = results.through
        }
        #expect(parts.flatMap(\.self) == Array(1...12), "\(bytes)")
        #expect(parts.allSatisfy { $0.count <= most }, "\(bytes): \(parts)")
        if number == 0, bytes == 20_000 { #expect(parts.map(\.last) == [3, 6, 9, 12]) }
      }
      // Lines that the query excludes do not count.
      var query = ResultQuery(batch.id, after: 0, through: 99)
      (query.maxBytes, query.phases, query.withRejected) = (1, [.success], false)
      #expect(try await store.base.results(query) == BatchResults(lines: [], through: 12))
    }
    await store.close()
  }

  @Test(
    "no job of a cancelled batch is claimed, and its jobs are cancelled in portions",
    arguments: adapters)
  func cancelled(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: Array(1...5))
    _ = try await store.base.add(lines, to: batch.id, capacity: 99)
    let loading = try #require(try await store.claimOne(at: .at(10)))
    let cancelled = try #require(try await store.base.cancel(batch.id))
    #expect(cancelled.state == .cancelled)
    #expect(cancelled.shownCounts[.cancelled] == 5)
    #expect(cancelled.counts[.queued] == 4)
    #expect(try await store.claimOne(at: .at(11)) == nil)
    let request = try #require(lines.jobs[2].request)
    #expect(try await store.claim(equalTo: request, count: 1, at: .at(12)).isEmpty)
    // The mark survives a restart.
    let reopened = try await jobs.reopened()
    if adapter == .sqlite { _ = try await reopened.recover() }
    #expect(try await reopened.claimOne(at: .at(13)) == nil)
    var ends = try await reopened.base.endStopped(2, keptFor: .seconds(60))
    #expect(ends.cancelled.map(\.phase) == [.cancelled, .cancelled])
    #expect(ends.isMore)
    ends = try await reopened.base.endStopped(9, keptFor: .seconds(60))
    #expect(!ends.isMore)
    #expect(ends.batches == [batch.id])
    _ = try await reopened.update(loading.job.id, under: nil) {
      $0.cancel(at: .at(20), keptFor: .seconds(60))
    }
    let now = try #require(try await reopened.base.batch(batch.id))
    #expect(now.counts[.cancelled] == 5)
    #expect(!now.isCancelling)
    #expect(now.finishedAt != nil)
    #expect(try await reopened.base.endStopped(9, keptFor: .seconds(60)).batches.isEmpty)
    // A batch runs again after one of its jobs was retried.
    _ = try await reopened.update(lines.jobs[3].id, under: nil) {
      $0.fetchAgain(at: .at(30), from: .regular)
    }
    #expect(try await reopened.base.batch(batch.id)?.state == .running)
    #expect(try await reopened.claimOne(at: .at(31))?.job.id == lines.jobs[3].id)
    try await reopened.audit()
    await reopened.close()
  }

  @Test(
    "a purged batch disappears at once, and its jobs are deleted afterwards", arguments: adapters)
  func purged(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: [1, 2, 3], rejected: [4])
    _ = try await store.base.add(lines, to: batch.id, capacity: 99)
    #expect(try await store.base.purge(batch.id))
    #expect(try await store.base.batch(batch.id) == nil)
    #expect(
      try await store.base.batches(BatchQuery(owner: nil, now: .at(0), limit: 9)).batches.isEmpty)
    #expect(try await !store.base.purge(batch.id))
    let ends = try await store.base.endStopped(9, keptFor: .seconds(60))
    #expect(ends.removed.map(\.id) == lines.jobs.map(\.id))
    #expect(try await store.counts().jobs[.queued] == 0)
    #expect(try await store.base.endStopped(9, keptFor: .seconds(60)).batches.isEmpty)
    try await store.audit()
    await store.close()
  }

  @Test(
    "the cache entries of a purged batch are deleted with its jobs, also across restarts",
    arguments: adapters)
  func purgedFromCache(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    var store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: [1, 2, 3])
    _ = try await store.base.add(lines, to: batch.id, capacity: 99)
    for claimed in try await store.claim(3, at: .at(10)).jobs {
      let line = try #require(claimed.job.batch?.line)
      let holder = JobID(at: .at(Int64(line)))
      _ = try await store.reserve(.sample(line), bytes: 7, as: holder, limit: .max / 2)
      // Another job's response has the same image.
      let others = try CacheEntry.sample(10 + line, .sample(line), bytes: 7)
      _ = try await store.complete(Completion([], entry: others) { _ in false })
      let entry = try CacheEntry.sample(line, .sample(line), bytes: 7)
      _ = try await store.complete(
        Completion([claimed.claim], entry: entry, releasing: holder) {
          $0.succeed(with: .sample(line), bytes: 7, at: .at(20))
          return true
        })
      _ = try await store.reserve(.sample(20 + line), bytes: 3, as: holder, limit: .max / 2)
      try await store.save(Self.variant(line), within: .max, releasing: holder)
    }
    #expect(try await store.cacheCounts() == (9, 30))
    #expect(try await store.base.purge(batch.id))
    for portion in 1...4 {
      let ends = try await store.base.endStoppedJobs(1, keptFor: .seconds(60)) { job in
        job.batch.map { CachedImage(.sample($0.line), under: [Self.key($0.line)]) }
      }
      #expect(ends.removed.count == (portion < 4 ? 1 : 0))
      store = try await jobs.reopened(after: store)
      _ = try await store.recover()
      #expect(try await store.counts().jobs[.success] == max(0, 3 - portion))
      let listed = try await store.base.jobs(JobQuery(owner: nil, now: .at(30), limit: 9))
      #expect(listed.jobs.isEmpty)
      for (job, line) in zip(lines.jobs, 1...) {
        let isThere = line > portion
        // A job of a purged batch is not found, even before it is deleted.
        #expect(try await store.job(job.id) == nil)
        let entries = try await store.entries(for: [Self.key(line), Self.key(10 + line)])
        #expect(entries.map(\.count) == [isThere ? 1 : 0, 1])
        let variant = try await store.variant(Self.variant(line).id)
        #expect((variant != nil) == isThere)
      }
    }
    #expect(try await store.cacheCounts() == (3, 21))
    let abandoned = try await store.unreferencedImages(9)
    #expect(Set(abandoned) == [.sample(21), .sample(22), .sample(23)])
    try await store.audit()
    await store.close()
  }

  private static func key(_ number: Int) -> Fingerprint { Fingerprint(of: ["\(number)"]) }

  /// A variant of the image with this number.
  private static func variant(_ number: Int) -> StoredVariant {
    let id = CacheEntry.ID(key: Rendition.key(of: .sample(number)), selector: key(0))
    return StoredVariant(id: id, name: "webp", digest: .sample(20 + number), bytes: 3)
  }

  @Test(
    "cancelled batches are processed before purged ones, and every call returns all of them",
    arguments: adapters)
  func stoppedInTurn(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let (purged, cancelled) = (Batch.sample(1), Batch.sample(2))
    for batch in [purged, cancelled] {
      _ = try await store.base.open(batch, key: nil)
      let lines = BatchLines.sample(batch, after: 0, lines: Array(1...4))
      _ = try await store.base.add(lines, to: batch.id, capacity: 99)
    }
    #expect(try await store.base.purge(purged.id))
    _ = try await store.base.cancel(cancelled.id)
    for (count, cancellations, removals) in [(0, 0, 0), (3, 3, 0), (3, 1, 2)] {
      let ends = try await store.base.endStopped(count, keptFor: .seconds(60))
      #expect(ends.cancelled.count == cancellations && ends.removed.count == removals)
      #expect(Set(ends.batches) == [purged.id, cancelled.id])
      #expect(ends.isMore)
    }
    let last = try await store.base.endStopped(9, keptFor: .seconds(60))
    #expect(last.removed.count == 2 && last.batches.isEmpty && !last.isMore)
    #expect(try await store.base.batch(cancelled.id)?.isCancelling == false)
    try await store.audit()
    await store.close()
  }

  @Test(
    "failed jobs are queued again by failure code, in the order of their lines", arguments: adapters
  )
  func retried(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    _ = try await store.base.add(
      .sample(batch, after: 0, lines: Array(1...9)), to: batch.id, capacity: 99)
    _ = try await store.base.close(batch.id)
    let failures: [JobFailure] = [.fetch(.timeout(seconds: 1)), .fetch(.noData), .notCached]
    for (index, job) in try await store.claim(9, at: .at(10)).jobs.enumerated() {
      _ = try await store.complete(
        Completion([job.claim]) {
          $0.fail(failures[index % 3], at: .at(30), keptFor: .seconds(60))
          return true
        })
    }
    #expect(try await store.base.batch(batch.id)?.state == .finished)
    var query = RetryQuery(batch.id, codes: [.timeout, .noData], count: 2)
    var lines: [Int?] = []
    while let retry = try await store.base.retry(
      query, { $0.fetchAgain(at: .at(40), from: .regular) })
    {
      lines += retry.jobs.map { $0.batch?.line }
      guard let next = retry.next else { break }
      query.after = next
    }
    #expect(lines == [1, 2, 4, 5, 7, 8])
    let now = try #require(try await store.base.batch(batch.id))
    #expect(now.state == .running)
    #expect(now.counts[.queued] == 6)
    #expect(now.counts.codes.map(\.code) == [.notCached])
    #expect(now.counts.codes.map(\.count) == [3])
    try await store.audit()
    await store.close()
  }

  @Test(
    "failed jobs are queued again while there are free slots for lines", arguments: adapters)
  func retriedWithin(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    _ = try await store.base.add(
      .sample(batch, after: 0, lines: Array(1...9)), to: batch.id, capacity: 9)
    _ = try await store.base.close(batch.id)
    for job in try await store.claim(9, at: .at(10)).jobs {
      _ = try await store.complete(
        Completion([job.claim]) {
          $0.fail(.fetch(.timeout(seconds: 1)), at: .at(30), keptFor: .seconds(60))
          return true
        })
    }
    @Sendable func retry(
      _ codes: Set<FailureCode>, _ capacity: QueueCapacity
    ) async throws -> BatchRetry {
      let query = RetryQuery(batch.id, codes: codes, count: 9, within: capacity)
      let retry = try await store.base.retry(query) { $0.fetchAgain(at: .at(40), from: .regular) }
      return try #require(retry)
    }
    let first = try await retry([.timeout], 4)
    #expect(first.isQueueFull)
    #expect(first.jobs.map { $0.batch?.line } == [1, 2, 3, 4])
    #expect(try await store.base.batch(batch.id)?.counts[.queued] == 4)
    #expect(try await store.submit([.sample(50)], key: nil, capacity: 1) == .accepted)
    let second = try await retry([.timeout], QueueCapacity(9, ofOwner: 4))
    #expect(second.isQueueFull && second.jobs.isEmpty)
    let none = try await retry([.noData], 0)
    #expect(!none.isQueueFull, "there is nothing to queue")
    async let one = retry([.timeout], 6)
    async let other = retry([.timeout], 6)
    let counts = try await (one.jobs.count, other.jobs.count)
    #expect(counts.0 + counts.1 == 2)
    let last = try await retry([.timeout], 9)
    #expect(!last.isQueueFull)
    #expect(try await store.base.batch(batch.id)?.counts[.queued] == 9)
    try await store.audit()
    await store.close()
  }

  @Test(
    "a batch that stops receiving lines is closed, and deleted when it expires", arguments: adapters
  )
  func tidied(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    _ = try await store.base.add(
      .sample(batch, after: 0, lines: [1], rejected: [2]), to: batch.id, capacity: 9)
    store.clock.set(.at(1_000))
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(1), 9) == 0)
    store.clock.set(.at(3_000))
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(1), 9) == 1)
    #expect(try await store.base.batch(batch.id)?.state == .running)
    let claimed = try #require(try await store.claimOne(at: .at(3_000)))
    _ = try await store.complete(
      Completion([claimed.claim]) {
        $0.fail(.fetch(.noData), at: .at(4_000), keptFor: .seconds(7_200))
        return true
      })
    // The batch expires together with the last of its jobs.
    #expect(try await store.base.batch(batch.id)?.expiresAt == .at(7_204_000))
    store.clock.set(.at(7_203_000))
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(1), 9) == 0)
    #expect(try await store.expire(9, at: .at(7_204_001)).count == 1)
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(1), 9) == 1)
    #expect(try await store.base.batch(batch.id) == nil)
    try await store.audit()
    await store.close()
  }

  @Test("an idle batch is closed even if very many others are open", arguments: adapters)
  func crowded(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    for number in 1...1_005 as ClosedRange<Int64> {
      _ = try await store.base.open(.sample(100_000 + number), key: nil)
    }
    let idle = Batch.sample(1)
    _ = try await store.base.open(idle, key: nil)
    store.clock.set(.at(50_000))
    var tidied = 0
    for _ in 0..<2 { tidied += try await store.base.closeAndExpireBatches(idleFor: .seconds(1), 9) }
    #expect(tidied == 1)
    #expect(try await store.base.batch(idle.id)?.state == .finished)
    await store.close()
  }

  @Test(
    "owners and batches are served in turn, whatever the priorities and queue lengths",
    arguments: StoreAdapter.allCases)
  func fair(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batches = [Batch.sample(1), .sample(2)]
    for batch in batches {
      _ = try await store.base.open(batch, key: nil)
      _ = try await store.base.add(
        .sample(batch, after: 0, lines: Array(1...100)), to: batch.id, capacity: 999)
    }
    for number in 0..<20 {
      _ = try await store.submit(.sample(90_000 + Int64(number)))
      _ = try await store.submit(.sample(91_000 + Int64(number), owner: "ben", priority: .low))
    }
    let first = try await store.claim(36, at: .at(10)).jobs.map(\.job)
    // Every second claim compares owners before priorities. So ben gets at least a quarter despite
    // the lower priority.
    #expect(first.count { $0.owner.name == "ben" } >= 9)
    let anna = first.filter { $0.owner.name == "anna" }
    for batch in batches {
      #expect(anna.count { $0.batch?.id == batch.id } >= anna.count / 3)
    }
    #expect(anna.count { $0.batch == nil } >= anna.count / 3)
    // Each batch is served in submission order.
    #expect(
      anna.filter { $0.batch?.id == batches[0].id }.compactMap { $0.batch?.line }.prefix(3) == [
        1, 2, 3,
      ])
    await store.close()
  }

  @Test("batches are listed by owner and state, newest first", arguments: adapters)
  func listed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batches = [Batch.sample(1), .sample(2, owner: "ben"), .sample(3), .sample(4)]
    for batch in batches { _ = try await store.base.open(batch, key: nil) }
    _ = try await store.base.close(batches[2].id)
    var query = BatchQuery(owner: Owner("anna"), now: .at(0), limit: 2)
    var page = try await store.base.batches(query)
    #expect(page.batches.map(\.id) == [batches[3].id, batches[2].id])
    #expect(page.hasMore)
    query.before = batches[2].id
    page = try await store.base.batches(query)
    #expect(page.batches.map(\.id) == [batches[0].id])
    #expect(!page.hasMore)
    (query.before, query.owner, query.states) = (nil, nil, [.receiving])
    query.limit = 9
    #expect(
      try await store.base.batches(query).batches.map(\.id)
        == [batches[3].id, batches[1].id, batches[0].id])
    await store.close()
  }
}

extension Batch {
  static func sample(
    _ number: Int64, owner: String = "anna", key: String? = nil, webhook: Webhook? = nil
  ) -> Batch {
    Batch(
      id: JobID(at: .at(number)), owner: Owner(owner), name: "n", key: key,
      retention: .seconds(3_600), webhook: webhook, createdAt: .at(number))
  }
}

extension BatchLines {
  /// Creates jobs at these lines.
  static func sample(
    _ batch: Batch, after offset: Int, lines: [Int], rejected: [Int] = [], count: Int? = nil
  ) -> BatchLines {
    let jobs = lines.map { line in
      Job(
        id: JobID(at: .at(batch.createdAt.milliseconds % 1_000 * 1_000 + Int64(line))),
        owner: batch.owner,
        submission: Submission(
          source: .url(SourceURL("https://example.org/\(line)")!, lowData: nil)),
        priority: .normal, tags: [], createdAt: batch.createdAt,
        batch: BatchPosition(id: batch.id, line: line))
    }
    let rejected = rejected.map {
      RejectedLine(line: $0, url: "x", code: "invalid_url", detail: "none")
    }
    return BatchLines(
      after: offset, count: count ?? max(lines.max() ?? 0, rejected.last?.line ?? 0) - offset,
      jobs: jobs, rejected: rejected)
  }
}
