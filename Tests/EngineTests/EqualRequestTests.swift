import Jobs
import TestSupport
import Testing

@testable import Engine

@Suite("Jobs with equal requests", .timeLimit(.minutes(15)))
struct EqualRequestTests {
  private let url = "http://a.example/x.png"

  @Test("a load runs at the highest priority of its jobs, also after one is cancelled or edited")
  func priority() async throws {
    let threads = TestThreads()
    try await Workshop.open(threads: threads) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let low = try await shop.submit(url, priority: .low)
      _ = try await shop.reached(.loading, low)
      let high = try await shop.submit(url, priority: .high)
      _ = try await shop.reached(.loading, high)
      _ = try await shop.engine.cancel(high, for: Workshop.me)
      _ = try await shop.engine.edit(low, for: Workshop.me, priority: .veryHigh, tags: nil)
      _ = try await shop.engine.edit(low, for: Workshop.me, priority: .veryLow, tags: nil)
      try await until { !shop.fetcher.requests.isEmpty }
      let worker = threads.workerLanes.first { $0.priorities.first == .low }
      #expect(worker?.priorities == [.low, .high, .low, .veryHigh, .veryLow])
      #expect(shop.fetcher.requests.count == 1)
    }
  }

  @Test("a thousand equal jobs make one request, and waiting ones occupy no worker")
  func thousand() async throws {
    try await Workshop.open({ $0.workers = 2 }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: nil))
      let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      let jobs = try await shop.engine.submit(
        [NewJob](repeating: NewJob(submission: submission), count: 1_000), by: Workshop.me,
        key: nil)
      for job in jobs { #expect(try await shop.reached(.loading, job.id).phase == .loading) }
      #expect(try await shop.finished(shop.submit("http://b.example/")).phase == .success)
      for job in jobs.dropFirst() {
        _ = try await shop.engine.cancel(job.id, for: Workshop.me)
      }
      #expect(try await shop.engine.job(jobs[0].id, for: Workshop.me).job.phase == .loading)
      #expect(shop.fetcher.requests.count == 2)
    }
  }

  @Test("jobs that a load has no memory for stay queued and get the next load")
  func memory() async throws {
    try await Workshop.open({ $0.workers = 2 }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      var submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      let path = String(repeating: "a", count: 8_000)
      submission.alternatives = (0..<80).map { SourceURL("http://b.example/\($0)\(path)")! }
      let jobs = try await shop.engine.submit(
        [NewJob](repeating: NewJob(submission: submission), count: 130), by: Workshop.me,
        key: nil)
      // The second load begins with a job that the first one has no memory for.
      try await until { shop.engine.loading.loads.count == 2 }
      // Loads that begin from here on succeed.
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      // The job of the second load is cancelled first: queued jobs could join it once there is memory.
      let waiting = shop.engine.loading.loads.all.sorted { $0.waiterCount < $1.waiterCount }
        .flatMap { $0.waiters.map(\.job.id) }
      #expect((90..<110).contains(waiting.count))
      for id in waiting { _ = try await shop.engine.cancel(id, for: Workshop.me) }
      for job in jobs where !waiting.contains(job.id) {
        let job = try await shop.finished(job.id)
        #expect(job.phase == .success, "\(job.phase) \(job.failure.map { "\($0)" } ?? "")")
      }
      try await until { shop.engine.loading.loads.capacity == WaitingMemory().remainingJobs }
    }
  }

  @Test("a thousand equal jobs share one decode, and all get the image")
  func oneDecode() async throws {
    try await Workshop.open({ $0.cache.isEnabled = false }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      let jobs = try await shop.engine.submit(
        [NewJob](repeating: NewJob(submission: submission), count: 1_000), by: Workshop.me,
        key: nil)
      for job in jobs {
        let job = try await shop.finished(job.id)
        #expect(job.phase == .success && job.image != nil)
      }
      #expect(shop.codec.begun == 1 && shop.fetcher.requests.count == 1)
    }
  }

  @Test("jobs with equal cache keys don't share a load if one fetches an alternative")
  func alternative() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer("http://b.example/", with: .hangs(after: ok))
      shop.fetcher.answer("http://c.example/", with: .pieces([ok], total: nil))
      let turned = try await shop.submit("http://gone.example/") {
        ($0.cacheKey, $0.alternatives) = ("k", [SourceURL("http://b.example/")!])
      }
      try await until { shop.fetcher.requests.count == 2 }
      let id = try await shop.submit("http://c.example/") { $0.cacheKey = "k" }
      #expect(try await shop.finished(id).image?.url?.host == "c.example")
      #expect(try await shop.engine.job(turned, for: Workshop.me).job.phase == .loading)
    }
  }

  @Test("a job that requires another digest is not failed by the stale entry of an equal job")
  func integrity() async throws {
    try await Workshop.open { shop in
      let other = ok + [1]
      try await shop.storeStale(url, then: other)
      let first = try await shop.submit(url) { $0.timeout = .seconds(1) }
      while shop.fetcher.requests.count < 2 { await Task.yield() }
      let second = try await shop.submit(url) {
        ($0.timeout, $0.integrity) = (.seconds(1), MemoryImageStore.digest(of: other))
      }
      let job = try await shop.finished(second)
      #expect(job.phase == .success && job.image?.digest == job.submission.integrity)
      #expect(try await shop.finished(first).cache?.status == .stale)
      #expect(shop.fetcher.requests.count == 3)
    }
  }

  @Test("a job that requires another digest times out when an equal job gets the stale entry")
  func integrityInTime() async throws {
    try await Workshop.open { shop in
      try await shop.storeStale(url)
      let first = try await shop.submit(url) { $0.timeout = .seconds(1) }
      while shop.fetcher.requests.count < 2 { await Task.yield() }
      let second = try await shop.submit(url) {
        ($0.timeout, $0.maxAttempts) = (.seconds(1), 1)
        $0.integrity = MemoryImageStore.digest(of: ok + [1])
      }
      #expect(try await shop.finished(second).failure?.code == .timeout)
      #expect(try await shop.finished(first).cache?.status == .stale)
      #expect(shop.fetcher.requests.count == 2)
    }
  }

  @Test("a job does not share a load with a job that has another cache_ttl")
  func freshness() async throws {
    let renderer = FakeRenderer()
    try await Workshop.open(renderer: renderer, { $0.cache.defaultTTL = .seconds(60) }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      _ = try await shop.finished(shop.submit(url))
      shop.clock.advance(by: .seconds(61))
      renderer.hold()
      let lasting = try await shop.submit(url) {
        // A new variant, so that the job needs a load.
        ($0.cacheTTL, $0.variants) = (1_000_000, [VariantRequest(name: "v")])
      }
      try await until { renderer.begun == 1 }
      #expect(try await shop.finished(shop.submit(url)).cache?.status == .miss)
      #expect(shop.fetcher.requests.count == 2)
      renderer.hold(false)
      #expect(try await shop.finished(lasting).cache?.status == .hit)
    }
  }

  @Test("jobs with more time left are queued alone, and equal jobs with less time join the load")
  func patient() async throws {
    try await Workshop.open({ $0.workers = 1 }) { shop in
      try await shop.storeStale(url, then: ok)
      _ = try await shop.submit(url) { $0.timeout = .seconds(30) }
      while shop.fetcher.requests.count < 2 { await Task.yield() }
      let timeouts: [Duration] = [.seconds(60), .seconds(30), .seconds(60), .seconds(10)]
      let jobs = timeouts.map { timeout in
        var submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
        submission.timeout = timeout
        return NewJob(submission: submission)
      }
      let ids = try await shop.engine.submit(jobs, by: Workshop.me, key: nil).map(\.id)
      var found: [Job] = []
      for id in ids { found.append(try await shop.engine.job(id, for: Workshop.me).job) }
      #expect(found.map(\.phase) == [.queued, .loading, .queued, .loading])
      _ = try await shop.engine.submit([jobs[0]], by: Workshop.me, key: nil)
      let again = try await shop.engine.job(ids[0], for: Workshop.me).job
      #expect(again.version == found[0].version)
    }
  }

  @Test("a job waits only for its own variants")
  func variants() async throws {
    let renderer = FakeRenderer()
    // No decode has the memory for two variants.
    renderer.need(10_000)
    try await Workshop.open(renderer: renderer, { $0.limits.maxMemory = 15_000 }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      shop.codec.hangs(true)
      func submit(_ widths: Int...) async throws -> JobID {
        try await shop.submit(url) {
          $0.variants = widths.map { width in
            var variant = VariantRequest(name: "w\(width)")
            variant.width = width
            return variant
          }
        }
      }
      let many = try await submit(1, 2, 3)
      let few = try await submit(4)
      let none = try await submit()
      for id in [many, few, none] {
        #expect(try await shop.reached(.loading, id).phase == .loading)
      }
      renderer.hold()
      shop.codec.hangs(false)
      #expect(try await shop.finished(none).phase == .success)
      func isLoading(_ id: JobID) async throws -> Bool {
        try await shop.engine.job(id, for: Workshop.me).job.phase == .loading
      }
      // One variant is rendered at a time, in any order.
      for count in 1...3 {
        renderer.hold(after: count)
        try await until { renderer.begun == count + 1 }
        let made = Set(renderer.order.prefix(count).map(\.width))
        try await until { try await isLoading(few) != made.contains(4) }
        try await until { try await isLoading(many) != made.isSuperset(of: [1, 2, 3]) }
      }
      renderer.hold(false)
      #expect(try await shop.finished(few).image?.variants.count == 1)
      #expect(try await shop.finished(many).image?.variants.count == 3)
      #expect(shop.fetcher.requests.count == 1)
    }
  }

  @Test("variants are rendered in the order of their jobs' current priorities")
  func turns() async throws {
    let renderer = FakeRenderer()
    try await Workshop.open(renderer: renderer, { $0.cache.defaultTTL = .seconds(60) }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      renderer.hold()
      let first = try await submit([2, 3], at: .normal, shop)
      try await until { renderer.begun == 1 }
      var others: [JobID] = []
      for (widths, priority) in [([1], Priority.low), ([4, 5], .veryLow), ([6], .veryLow)] {
        others.append(try await submit(widths, at: priority, shop))
        // The second job waits for two variants.
        let waiting = others.count > 1 ? others.count + 1 : 1
        try await until { shop.engine.renditions.variants?.load.waiting == waiting }
      }
      for id in others.dropFirst() {
        _ = try await shop.engine.edit(id, for: Workshop.me, priority: .veryHigh, tags: nil)
      }
      let waits = try await shop.engine.job(others[0], for: Workshop.me).job
      #expect(waits.phase == .loading && shop.engine.waiting(of: waits)?.reason == .render)
      renderer.hold(false)
      for id in [first] + others { #expect(try await shop.finished(id).phase == .success) }
      #expect(renderer.order.map(\.width) == [2, 3, 4, 5, 6, 1])
      #expect(shop.fetcher.requests.count == 1)
    }
  }

  @Test("equal jobs with smaller variants of a JPEG get them with one more decode")
  func smaller() async throws {
    let (renderer, jpegs) = (ScalingRenderer(), JPEGCodec(makesVariants: true))
    try await Workshop.open(
      renderer: renderer, jpegs: jpegs, { $0.cache.defaultTTL = .seconds(60) }
    ) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      shop.codec.hangs(true)
      let large = try await submit([9], at: .normal, shop)
      #expect(try await shop.reached(.loading, large).phase == .loading)
      let small = try await submit([1, 2, 3, 4], at: .normal, shop)
      #expect(try await shop.reached(.loading, small).phase == .loading)
      shop.codec.hangs(false)
      #expect(try await shop.finished(large).image?.variants.map(\.width) == [9])
      #expect(try await shop.finished(small).image?.variants.map(\.width) == [1, 2, 3, 4])
      #expect(renderer.fake.begun == 1 && renderer.fake.order.map(\.width) == [1, 2, 3, 4])
      // They are read at their own scale, as they would be without the other job.
      #expect(renderer.fake.order.allSatisfy { $0.shrink == nil })
      // Variants of a stored image are made in the same way.
      let later = try await submit([5, 6, 7], at: .normal, shop)
      #expect(try await shop.finished(later).cache?.status == .hit)
      #expect(renderer.fake.begun == 2 && shop.fetcher.requests.count == 1)
    }
  }

  @Test("equal jobs with equal variants cost little, however many there are")
  func equalVariants() async throws {
    let (renderer, jpegs) = (ScalingRenderer(), JPEGCodec())
    try await Workshop.open(
      renderer: renderer, jpegs: jpegs,
      {
        $0.cache.isEnabled = false
        $0.workers = 1
      }
    ) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      renderer.fake.hold()
      let first = try await submit([1, 9], at: .normal, shop)
      try await until { renderer.fake.begun == 1 }
      let asked = renderer.looks
      let submission = try await shop.engine.job(first, for: Workshop.me).job.submission
      var ids = [first]
      for _ in 0..<2 {
        let jobs = [NewJob](repeating: NewJob(submission: submission), count: 200)
        ids += try await shop.engine.submit(jobs, by: Workshop.me, key: nil).map(\.id)
      }
      for id in ids { #expect(try await shop.reached(.loading, id).phase == .loading) }
      renderer.fake.hold(false)
      for id in ids { #expect(try await shop.finished(id).image?.variants.count == 2) }
      // Nothing is cached here, so jobs that come after a load start another one.
      #expect(renderer.looks - asked < 40)
      #expect(renderer.fake.begun <= 3 && shop.fetcher.requests.count <= 10)
    }
  }

  private func submit(
    _ widths: [Int], at priority: Priority, _ shop: Workshop
  ) async throws -> JobID {
    try await shop.submit(url, priority: priority) {
      $0.variants = widths.map { width in
        var variant = VariantRequest(name: "w\(width)")
        variant.width = width
        return variant
      }
    }
  }

  @Test("a job gets the image while another one's variants are rendered, whose timeout goes on")
  func joining() async throws {
    let renderer = FakeRenderer()
    try await Workshop.open(renderer: renderer) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      renderer.hold()
      let first = try await shop.submit(url) {
        ($0.timeout, $0.variants) = (.seconds(1), [VariantRequest(name: "v")])
        $0.maxAttempts = 1
      }
      try await until { renderer.begun == 1 }
      #expect(try await shop.finished(shop.submit(url)).phase == .success)
      #expect(try await shop.finished(first).failure?.code == .timeout)
      renderer.hold(false)
    }
  }

  @Test("a job ends after its own deliveries, even if those of other owners are slow")
  func deliveries() async throws {
    let receiver = SlowReceiver(host: "slow.example")
    try await Workshop.open(destinations: receiver) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      shop.codec.hangs(true)
      func submit(to host: String, by caller: Caller) async throws -> JobID {
        var submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
        let target = DeliveryRequest.Target.put(SourceURL("http://\(host)/x")!, headers: [])
        submission.deliveries = [DeliveryRequest(target, variant: nil)]
        return try await shop.engine.submit(
          [NewJob(submission: submission)], by: caller, key: nil)[0].id
      }
      var slow: [JobID] = []
      for _ in 0..<9 { slow.append(try await submit(to: "slow.example", by: Workshop.me)) }
      let other = Caller(owner: Owner("other"), isAdmin: false)
      let quick = try await submit(to: "quick.example", by: other)
      for id in slow { #expect(try await shop.reached(.loading, id).phase == .loading) }
      try await until { try await shop.engine.job(quick, for: other).job.phase == .loading }
      shop.codec.hangs(false)
      let ended = try await shop.engine.wait(
        quick, for: other, until: .finished, atMost: .seconds(10))
      #expect(ended.job.phase == .success && ended.job.deliveries.count == 1)
      for id in slow {
        #expect(try await shop.engine.job(id, for: Workshop.me).job.phase == .loading)
      }
      receiver.open()
      for id in slow { #expect(try await shop.finished(id).phase == .success) }
      #expect(shop.fetcher.requests.count == 1 && receiver.begun == 10)
    }
  }
}
