import Jobs
import Testing

@Suite("Listing jobs")
struct ListingTests {
  /// Submits twenty jobs of three owners, in three phases, some with tags.
  private static func fill(_ store: StoreUnderTest) async throws -> [Job] {
    let owners = ["anna", "bert", ""]
    for number in 0..<20 {
      let tags = [["even"], ["odd", "x"]][number % 2] + (number == 7 ? ["only"] : [])
      _ = try await store.submit(
        .sample(Int64(number), owner: owners[number % 3], tags: tags))
    }
    for (job, claim) in try await store.claim(8, at: .at(30)).jobs.dropFirst(3) {
      _ = try await store.update(job.id, under: claim) {
        $0.fail(.internal, at: .at(30), keptFor: .milliseconds(job.createdAt.milliseconds % 10 + 1))
        return true
      }
    }
    let everything = try await store.jobs(JobQuery(owner: nil, now: .at(0), limit: 100))
    #expect(everything.jobs.count == 20 && !everything.hasMore)
    return everything.jobs
  }

  private struct Case: Sendable, CustomTestStringConvertible {
    var owner: Owner?
    var phases: Set<Phase> = []
    var tag: String?
    var now: Int64 = 0
    var testDescription: String {
      "\(owner?.name ?? "everyone") \(phases.map(\.rawValue).sorted()) \(tag ?? "-") at \(now)"
    }
    func takes(_ job: Job) -> Bool {
      (owner == nil || owner == job.owner) && (phases.isEmpty || phases.contains(job.phase))
        && (tag.map(job.tags.contains) ?? true) && (job.expiresAt.map { $0 > .at(now) } ?? true)
    }
  }

  private static let cases: [Case] = {
    var all: [Case] = []
    for owner in [nil, Owner("anna"), .anonymous, Owner("nobody")] {
      for phases: Set<Phase> in [[], [.queued], [.loading, .failure], [.success]] {
        for tag in [nil, "odd", "only", "none"] {
          for now in [Int64(0), 33] {
            all.append(Case(owner: owner, phases: phases, tag: tag, now: now))
          }
        }
      }
    }
    return all
  }()

  @Test(
    "every filter returns the matching jobs, newest first, page by page",
    arguments: StoreAdapter.allCases)
  func filters(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let everything = try await Self.fill(jobs.store)
    #expect(everything.map(\.id) == everything.map(\.id).sorted(by: >))
    for item in Self.cases {
      let expected = everything.filter(item.takes)
      var query = JobQuery(owner: item.owner, now: .at(item.now), limit: 3)
      query.phases = item.phases
      query.tag = item.tag
      var listed: [Job] = []
      while true {
        let page = try await jobs.store.jobs(query)
        listed += page.jobs
        #expect(page.hasMore == (listed.count < expected.count), "\(item.testDescription)")
        guard page.hasMore, let last = page.jobs.last else { break }
        query.before = last.id
      }
      #expect(listed == expected, "\(item.testDescription)")
    }
    await jobs.store.close()
  }

  @Test(
    "jobs are listed by their new tags, and no longer by removed ones",
    arguments: StoreAdapter.allCases)
  func editedTags(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1, tags: ["old", "both", "both"])
    _ = try await jobs.store.submit(job)
    _ = try await jobs.store.update(job.id, under: nil) {
      $0.edit(priority: nil, tags: ["both", "new"])
    }
    for (tag, count) in [("old", 0), ("both", 1), ("new", 1)] {
      var query = JobQuery(owner: job.owner, now: .at(1), limit: 9)
      query.tag = tag
      #expect(try await jobs.store.jobs(query).jobs.count == count, "\(tag)")
    }
    await jobs.store.close()
  }

  @Test("tags are compared by their bytes", arguments: StoreAdapter.allCases)
  func encodedTags(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let (composed, decomposed) = ("caf\u{E9}", "cafe\u{301}")
    let job = Job.sample(1, tags: [composed])
    _ = try await jobs.store.submit(job)
    for (tags, counts) in [
      ([composed], [1, 0]), ([decomposed], [0, 1]), ([composed, decomposed], [1, 1]),
    ] {
      _ = try await jobs.store.update(job.id, under: nil) { $0.edit(priority: nil, tags: tags) }
      var query = JobQuery(owner: job.owner, now: .at(1), limit: 9)
      var found: [Int] = []
      for tag in [composed, decomposed] {
        query.tag = tag
        found.append(try await jobs.store.jobs(query).jobs.count)
      }
      #expect(found == counts)
    }
    await jobs.store.close()
  }

  @Test(
    "a page of very large jobs ends early, and the next page continues there",
    arguments: [StoreAdapter.sqlite, .postgres])
  func longRecords(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let long = Array(repeating: String(repeating: "x", count: 1 << 20), count: 3)
    for number in 0..<4 { _ = try await jobs.store.submit(.sample(Int64(number), tags: long)) }
    var query = JobQuery(owner: nil, now: .at(0), limit: 500)
    var pages: [Int] = []
    while true {
      let page = try await jobs.store.jobs(query)
      pages.append(page.jobs.count)
      guard page.hasMore else { break }
      query.before = page.jobs.last?.id
    }
    #expect(pages == [2, 2])
    await jobs.store.close()
  }

  @Test(
    "jobs that are read but filtered out count in the size of a page",
    arguments: [StoreAdapter.sqlite, .postgres])
  func vainLooks(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let url = "https://example.org/" + String(repeating: "x", count: 8_000)
    let all = (0..<7).map { Job.sample($0, url: url) }
    for job in all { _ = try await jobs.store.submit(job) }
    var query = JobQuery(owner: nil, now: .at(0), limit: 1)
    (query.host, query.maxBytes) = ("example.com", 20_000)
    for last in [all[4].id, all[1].id, nil] {
      let page = try await jobs.store.jobs(query)
      #expect(page.jobs.isEmpty && page.hasMore == (last != nil))
      #expect(page.last == last)
      query.before = page.last
    }
    await jobs.store.close()
  }

  @Test(
    "a page ends with the job that reaches the size limit, and has at least one job",
    arguments: [StoreAdapter.sqlite, .postgres])
  func fewBytes(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let url = "https://example.org/" + String(repeating: "x", count: 8_000)
    for number in 0..<7 { _ = try await jobs.store.submit(.sample(Int64(number), url: url)) }
    let cases: [(bytes: Int, pages: [Int])] = [
      (1, [1, 1, 1, 1, 1, 1, 1]), (20_000, [3, 3, 1]), (1 << 20, [7]),
    ]
    for (bytes, expected) in cases {
      var query = JobQuery(owner: Owner("anna"), now: .at(0), limit: 500)
      (query.maxBytes, query.phases) = (bytes, [.queued])
      var (pages, ids): ([Int], Set<JobID>) = ([], [])
      while true {
        let page = try await jobs.store.jobs(query)
        pages.append(page.jobs.count)
        ids.formUnion(page.jobs.map(\.id))
        guard page.hasMore, pages.count < 9 else { break }
        query.before = page.jobs.last?.id
      }
      #expect(pages == expected && ids.count == 7, "\(bytes)")
    }
    await jobs.store.close()
  }
}
