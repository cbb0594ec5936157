import Foundation
import Jobs
import PostgreSQL
import SQL
import TestSupport
import Testing

@Suite("Defaults shared by the lines of a batch")
struct BatchDefaultsTests {
  /// 40 kB of fields and tags, as in a client's `defaults`.
  private static let template: NewJob = {
    var submission = Submission(source: .url(SourceURL("http://localhost/")!, lowData: nil))
    submission.headers = (0..<8).map {
      HeaderField(name: "X-\($0)", value: String(repeating: "h", count: 1_000))
    }
    submission.alternatives = (0..<4).map { number in
      SourceURL("https://b\u{FC}cher.example/\(number)" + String(repeating: "a", count: 7_900))!
    }
    submission.retention = .seconds(60)
    submission.integrity = .sample(7)
    submission.webhook = Webhook(
      url: SourceURL("https://hooks.example/")!, events: [.jobSuccess, .jobFailure])
    return NewJob(
      submission: submission, tags: (0..<8).map { "\($0)" + String(repeating: "t", count: 60) })
  }()

  private static let fetcher = ScriptedFetcher(
    spellings: ["b\u{FC}cher.example": "xn--bcher-kva.example"])

  /// Creates a line's job as the engine does.
  private static func job(
    _ batch: Batch, _ line: Int, _ defaults: SharedDefaults, _ change: (inout NewJob) -> Void
  ) -> Job {
    var new = template
    new.submission.source = .url(SourceURL("https://example.org/\(line)")!, lowData: nil)
    new.submission.defaults = defaults
    change(&new)
    new.submission.spellHosts(by: fetcher)
    return Job(
      id: JobID(at: .at(1_000 + Int64(line))), owner: batch.owner, submission: new.submission,
      priority: .normal, tags: new.tags, createdAt: batch.createdAt,
      batch: BatchPosition(id: batch.id, line: line))
  }

  /// Opens a batch. Most of its lines equal the template.
  private static func open(
    _ store: StoreUnderTest, _ number: Int64 = 1, lines: Int = 6
  ) async throws -> (batch: Batch, jobs: [Job]) {
    let batch = Batch.sample(number)
    _ = try await store.base.open(batch, key: nil)
    let defaults = try #require(SharedDefaults(of: template)).spelled(by: fetcher)
    let jobs = (1...lines).map { line in
      job(batch, line, defaults) { new in
        switch line {
        case 2: (new.submission.integrity, new.submission.retention) = (nil, .seconds(30))
        case 3: (new.submission.headers, new.tags) = ([], [])
        case 4: (new.submission.alternatives, new.submission.webhook) = ([], nil)
        case 5: new.tags.append("own")
        default: break
        }
      }
    }
    let added = BatchLines(after: 0, count: lines, jobs: jobs)
    guard case .accepted = try await store.base.add(added, to: batch.id, capacity: .max) else {
      throw StoreError.unavailable(detail: "the lines were not taken")
    }
    return (batch, jobs)
  }

  @Test(
    "jobs with shared defaults are read, edited, finished and listed like others",
    arguments: BatchStoreTests.adapters
  )
  func life(adapter: StoreAdapter) async throws {
    let place = try OpenJobs(adapter)
    let store = place.store
    let (batch, jobs) = try await Self.open(store)
    for job in jobs {
      #expect(try await store.base.job(job.id) == job)
      #expect(try await store.base.job(job.id)?.submission.hosts == job.submission.hosts)
    }
    // One edit replaces all tags, the other removes them.
    let edited = try await store.base.update(jobs[0].id, under: nil) {
      $0.edit(priority: .high, tags: ["new"])
    }
    #expect(edited?.tags == ["new"] && edited?.submission == jobs[0].submission)
    _ = try await store.base.update(jobs[1].id, under: nil) { $0.edit(priority: nil, tags: []) }
    #expect(try await store.base.job(jobs[0].id) == edited)
    #expect(try await store.base.job(jobs[1].id)?.tags == [])
    var query = JobQuery(owner: batch.owner, now: .at(0), limit: 9)
    query.tag = Self.template.tags[0]
    #expect(
      Set(try await store.base.jobs(query).jobs.map(\.id)) == Set([3, 4, 5].map { jobs[$0].id }))
    query.tag = "own"
    #expect(try await store.base.jobs(query).jobs.map(\.id) == [jobs[4].id])

    let claimed = try await store.claim(9, at: .at(10)).jobs
    #expect(claimed.count == 6)
    for (job, _) in claimed {
      let line = try #require(jobs.first { $0.id == job.id })
      #expect(job.submission == line.submission && job.phase == .loading)
    }
    for (_, claim) in claimed {
      _ = try await store.complete(
        Completion([claim]) {
          $0.fail(.fetch(.timeout(seconds: 1)), at: .at(30), keptFor: .seconds(60))
          return true
        })
    }
    let results = try await store.base.results(ResultQuery(batch.id, after: 0, through: 9))
    let found = results?.lines.compactMap { line -> Job? in
      if case .job(let job, _) = line { job } else { nil }
    }
    #expect(found?.map(\.submission) == jobs.map(\.submission))
    let retry = try await store.base.retry(RetryQuery(batch.id, codes: [.timeout], count: 9)) {
      $0.fetchAgain(at: .at(40), from: .regular)
    }
    #expect(retry?.jobs.map(\.submission) == jobs.map(\.submission))
    // A message contains only what its receiver may see.
    for message in try await store.base.messages(of: jobs[4].id) {
      guard case .job(let summary) = message.subject else { continue }
      #expect(summary.submission == Submission(source: jobs[4].submission.source))
      #expect(summary.tags == jobs[4].tags)
    }
    try await store.audit()
    await store.close()
  }

  @Test(
    "defaults are stored once per batch and deleted with it",
    arguments: [StoreAdapter.sqlite, .postgres])
  func once(adapter: StoreAdapter) async throws {
    let place = try OpenJobs(adapter)
    let store = place.store
    let (batch, jobs) = try await Self.open(store, lines: 300)
    let (other, _) = try await Self.open(store, 2, lines: 6)
    #expect(try place.count(of: "batch_defaults") == 2)
    // 300 copies would need 12 MB. One line has its own tags, and no line overrides the
    // alternatives.
    let bytes = try await Self.recordBytes(store)
    #expect(bytes < 300 * 800, "\(bytes)")

    #expect(try await store.base.purge(batch.id, refusedAfter: nil))
    var ends = StoppedBatchJobs()
    repeat {
      ends = try await store.base.endStoppedJobs(100, keptFor: .seconds(1)) { _ in nil }
    } while ends.isMore
    #expect(try await store.base.job(jobs[0].id) == nil)
    #expect(try place.count(of: "batch_defaults") == 1)
    #expect(try await store.base.batch(other.id)?.counts[.queued] == 6)
    try await store.audit()
    await store.close()
  }

  private static func recordBytes(_ store: StoreUnderTest) async throws -> Int {
    try await store.sql.recordBytes()
  }

  @Test(
    "the size limit of a page counts shared defaults for each of its jobs",
    arguments: [StoreAdapter.sqlite, .postgres])
  func pages(adapter: StoreAdapter) async throws {
    let place = try OpenJobs(adapter)
    let store = place.store
    let (batch, jobs) = try await Self.open(store, lines: 40)
    var query = JobQuery(owner: batch.owner, now: .at(0), limit: 100)
    query.maxBytes = 200_000
    let page = try await store.base.jobs(query)
    #expect(page.jobs.count < 10 && page.hasMore)
    #expect(page.jobs.first == jobs.last)
    await store.close()
  }

  @Test("a job whose batch has lost the defaults is unreadable")
  func missing() async throws {
    let place = try OpenJobs(.sqlite)
    let (_, jobs) = try await Self.open(place.store)
    try place.execute("UPDATE jobs SET defaults = zeroblob(32)")
    await #expect(throws: StoreError.self) { try await place.store.base.job(jobs[0].id) }
    await place.store.close()
  }
}
