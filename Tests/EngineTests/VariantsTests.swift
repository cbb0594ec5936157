import SQL
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Variants of a job's image")
struct VariantsTests {
  /// A workshop with one job that has succeeded.
  private struct Studio {
    let workshop: Workshop
    let renderer: FakeRenderer
    let job: Job
    let image: StoredImage

    var id: JobID { job.id }

    var engine: JobEngine { workshop.engine }

    func rendition(_ ask: (inout Variant) -> Void = { _ in }) throws -> Rendition {
      var variant = Variant(format: .webp)
      ask(&variant)
      return try #require(engine.rendition(of: image, as: variant))
    }

    func open(_ rendition: Rendition) async throws -> [UInt8] {
      let stored = try await engine.open(rendition, for: job).bytes
      return stored.read(at: 0, count: stored.count)
    }

    /// A separate request that can be cancelled.
    func request(
      _ rendition: Rendition, at priority: Priority = .normal, by owner: Owner? = nil
    ) -> Task<Result<[UInt8], JobsError>, Never> {
      let asked = Job(
        id: id, owner: owner ?? job.owner, submission: job.submission, priority: priority, tags: [],
        createdAt: job.createdAt)
      return Task {
        do throws(JobsError) {
          let stored = try await engine.open(rendition, for: asked).bytes
          return .success(stored.read(at: 0, count: stored.count))
        } catch {
          return .failure(error)
        }
      }
    }

    func expected(_ rendition: Rendition) -> [UInt8] {
      FakeRenderer.picture(rendition.variant, of: ok)
    }
  }

  private static func open(
    store: MemoryJobStore = MemoryJobStore(), images: MemoryImageStore = MemoryImageStore(),
    renderer: FakeRenderer = FakeRenderer(),
    mode: CacheMode = .default, _ adjust: (inout JobEngine.Configuration) -> Void = { _ in },
    _ body: (Studio) async throws -> Void
  ) async throws {
    let fetcher = ScriptedFetcher()
    fetcher.answer("https://a.example/a.png", with: .pieces([ok], total: ok.count))
    try await Workshop.open(
      store: store, images: images, fetcher: fetcher, renderer: renderer,
      {
        // With a cache in memory the disk would not be used.
        $0.cache.memory = 0
        adjust(&$0)
      }
    ) { workshop in
      let id = try await workshop.submit("https://a.example/a.png") { $0.cacheMode = mode }
      let job = try await workshop.finished(id)
      let image = try #require(job.image)
      try await body(Studio(workshop: workshop, renderer: renderer, job: job, image: image))
    }
  }

  private static func eventually(
    _ condition: () async throws -> Bool, _ location: SourceLocation = #_sourceLocation
  ) async throws {
    let deadline = ContinuousClock.now + patience
    while try await !condition() {
      try #require(ContinuousClock.now < deadline, "waited too long", sourceLocation: location)
      try await Task.sleep(for: .milliseconds(2))
    }
  }

  @Test("fifty requests for the same variant at the same time share one rendering")
  func shared() async throws {
    try await Self.open { studio in
      studio.renderer.hold()
      let rendition = try studio.rendition { $0.width = 5 }
      let requests = (0..<50).map { _ in studio.request(rendition) }
      try await Self.eventually { studio.renderer.begun == 1 }
      studio.renderer.hold(false)
      for request in requests {
        #expect(await request.value == .success(studio.expected(rendition)))
      }
      #expect(try await studio.open(rendition) == studio.expected(rendition))
      #expect(studio.renderer.begun == 1)
    }
  }

  @Test("variants of one image share a decode, and those that arrive during it share the next one")
  func together() async throws {
    try await Self.open {
      $0.renderingsAtOnce = 4
    } _: { studio in
      studio.renderer.hold()
      let renditions = try (1...4).map { width in try studio.rendition { $0.width = width } }
      var requests = [studio.request(renditions[0])]
      try await Self.eventually { studio.renderer.begun == 1 }
      for (rendition, priority) in zip(renditions[1...], [Priority.low, .high, .normal]) {
        requests.append(studio.request(rendition, at: priority))
      }
      // A cancelled request does not affect the decode of the others.
      let left = studio.request(try studio.rendition { $0.width = 5 })
      try await Self.eventually { studio.engine.renditions.variants?.load.waiting == 4 }
      left.cancel()
      #expect(await left.value == .failure(.abandoned))
      #expect(studio.renderer.begun == 1)
      studio.renderer.hold(false)
      for (request, rendition) in zip(requests, renditions) {
        #expect(await request.value == .success(studio.expected(rendition)))
      }
      #expect(studio.renderer.begun == 2)
      #expect(studio.renderer.order.map(\.width) == [1, 3, 4, 2])
    }
  }

  @Test("variants of one image are decoded separately if they need too much memory together")
  func apart() async throws {
    try await Self.open {
      $0.limits.maxMemory = 10_000
    } _: { studio in
      studio.renderer.need(4_000)
      studio.renderer.hold()
      var requests = [studio.request(try studio.rendition { $0.width = 1 })]
      try await Self.eventually { studio.renderer.begun == 1 }
      for width in 2...4 {
        requests.append(studio.request(try studio.rendition { $0.width = width }))
      }
      try await Self.eventually { studio.engine.renditions.variants?.load.waiting == 3 }
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      #expect(studio.renderer.begun == 3)
    }
  }

  @Test("a rendering is stopped only when the last request for it is cancelled")
  func leaving() async throws {
    try await Self.open { studio in
      studio.renderer.hold()
      let rendition = try studio.rendition { $0.width = 5 }
      let requests = (0..<4).map { _ in studio.request(rendition) }
      try await Self.eventually { studio.renderer.underWay == 1 }
      for request in requests[..<3] {
        request.cancel()
        #expect(await request.value == .failure(.abandoned))
      }
      #expect(studio.renderer.underWay == 1)
      requests[3].cancel()
      #expect(await requests[3].value == .failure(.abandoned))
      try await Self.eventually { studio.renderer.underWay == 0 }
      #expect(studio.renderer.finished == 0)
      // A new request does not join the stopped rendering.
      studio.renderer.hold(false)
      #expect(try await studio.open(rendition) == studio.expected(rendition))
    }
  }

  @Test("a variant whose request is cancelled in the queue is never rendered")
  func leftWaiting() async throws {
    try await Self.open {
      $0.renderingsAtOnce = 1
    } _: { studio in
      studio.renderer.hold()
      let first = studio.request(try studio.rendition { $0.width = 1 })
      try await Self.eventually { studio.renderer.begun == 1 }
      let second = studio.request(try studio.rendition { $0.width = 2 })
      try await Task.sleep(for: .milliseconds(20))
      second.cancel()
      #expect(await second.value == .failure(.abandoned))
      studio.renderer.hold(false)
      _ = await first.value
      _ = try await studio.open(try studio.rendition { $0.width = 3 })
      #expect(studio.renderer.order.map(\.width) == [1, 3])
    }
  }

  @Test("a limited number is rendered at once, others wait by priority, and more are refused")
  func bounded() async throws {
    // AVIF is encoded alone, so that one image is enough for all requests.
    try await Self.open(renderer: FakeRenderer(formats: [.avif])) {
      $0.renderingsAtOnce = 2
      $0.maxWaitingRenderings = 3
    } _: { studio in
      studio.renderer.hold()
      var requests: [Task<Result<[UInt8], JobsError>, Never>] = []
      for (width, priority) in [
        (1, Priority.low), (2, .low), (3, .low), (4, .normal), (5, .veryHigh),
      ] {
        requests.append(
          studio.request(
            try studio.rendition { ($0.width, $0.format) = (width, .avif) }, at: priority))
        if width < 3 { try await Self.eventually { studio.renderer.begun == width } }
      }
      try await Self.eventually { studio.engine.renditions.variants?.load.waiting == 3 }
      let refused = try studio.rendition { ($0.width, $0.format) = (6, .avif) }
      #expect(await studio.request(refused).value == .failure(.renderingsFull))
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      #expect(studio.renderer.mostUnderWay <= 2)
      #expect(studio.renderer.order.map(\.width).prefix(3) == [1, 2, 5])
      #expect(Set(studio.renderer.order.map(\.width)) == [1, 2, 3, 4, 5])
      #expect(try await studio.open(refused) == studio.expected(refused), "there is room again")
    }
  }

  @Test("many urgent variants of one owner delay another owner's only a little")
  func owners() async throws {
    try await Self.open(renderer: FakeRenderer(formats: [.avif])) {
      $0.renderingsAtOnce = 1
    } _: { studio in
      studio.renderer.hold()
      var requests: [Task<Result<[UInt8], JobsError>, Never>] = []
      for width in 1...9 {
        let rendition = try studio.rendition { ($0.width, $0.format) = (width, .avif) }
        requests.append(
          width < 9
            ? studio.request(rendition, at: .veryHigh)
            : studio.request(rendition, by: Owner("another owner")))
        try await Self.eventually {
          studio.renderer.begun == 1 && studio.engine.renditions.variants?.load.waiting == width - 1
        }
      }
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      let place = try #require(studio.renderer.order.map(\.width).firstIndex(of: 9))
      #expect(place <= 3)
    }
  }

  @Test("many waiting variants of one owner leave slots to another")
  func crowded() async throws {
    try await Self.open(renderer: FakeRenderer(formats: [.avif])) {
      $0.renderingsAtOnce = 1
      $0.maxWaitingRenderings = 4
    } _: { studio in
      studio.renderer.hold()
      func ask(_ width: Int, by owner: String) throws -> Task<Result<[UInt8], JobsError>, Never> {
        studio.request(
          try studio.rendition { ($0.width, $0.format) = (width, .avif) }, by: Owner(owner))
      }
      var requests = [try ask(1, by: "a")]
      try await Self.eventually { studio.renderer.begun == 1 }
      for width in 2...5 { requests.append(try ask(width, by: "a")) }
      try await Self.eventually { studio.engine.renditions.variants?.load.waiting == 4 }
      let refused = try ask(6, by: "b")
      #expect(await refused.value == .failure(.renderingsFull))
      // The next free slot is for the other owner.
      let left = requests.removeLast()
      left.cancel()
      #expect(await left.value == .failure(.abandoned))
      let again = try ask(5, by: "a")
      try await Task.sleep(for: .milliseconds(20))
      requests.append(try ask(6, by: "b"))
      try await Self.eventually { studio.engine.renditions.variants?.load.waiting == 4 }
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      #expect(await again.value == .failure(.renderingsFull))
    }
  }

  @Test("variants wait for memory shared with decodes, and fail if they need more than all of it")
  func memory() async throws {
    try await Self.open {
      $0.limits.maxMemory = 10_000
      $0.renderingsAtOnce = 4
    } _: { studio in
      studio.renderer.need(9_000)
      studio.renderer.hold()
      let requests = try (1...3).map { width in
        studio.request(try studio.rendition { $0.width = width })
      }
      try await Self.eventually { studio.renderer.begun == 1 }
      try await Task.sleep(for: .milliseconds(50))
      #expect(studio.renderer.begun == 1)
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      #expect(studio.renderer.mostUnderWay == 1)
      studio.renderer.need(10_000)
      let needed = 10_000 + ok.count
      await #expect(throws: JobsError.unrenderable(.tooMuchMemory(bytes: needed, limit: 10_000))) {
        _ = try await studio.open(try studio.rendition { $0.width = 9 })
      }
    }
  }

  @Test("all requests get the error of a rendering, and the next one tries again")
  func failing() async throws {
    try await Self.open { studio in
      studio.renderer.fail(with: .cutShort)
      let rendition = try studio.rendition()
      await #expect(throws: JobsError.unrenderable(.cutShort)) {
        _ = try await studio.open(rendition)
      }
      studio.renderer.fail(with: nil)
      #expect(try await studio.open(rendition) == studio.expected(rendition))
    }
  }

  @Test("a rendered variant is cached, counted and found after a restart")
  func kept() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    var wanted: [UInt8] = []
    try await Self.open(store: store, images: images) { studio in
      let rendition = try studio.rendition { $0.width = 5 }
      wanted = try await studio.open(rendition)
      try await Self.eventually { try await studio.engine.cacheCounts().entries == 2 }
      #expect(try await studio.engine.cacheCounts().bytes == ok.count + wanted.count)
    }
    try await Self.open(store: store, images: images) { studio async throws in
      #expect(try await studio.open(try studio.rendition { $0.width = 5 }) == wanted)
      #expect(studio.renderer.begun == 0)
    }
  }

  @Test("a variant whose bytes are missing or corrupt is rendered again", arguments: [true, false])
  func harmed(isGone: Bool) async throws {
    try await Self.open { studio in
      let rendition = try studio.rendition { $0.width = 5 }
      let bytes = try await studio.open(rendition)
      try await Self.eventually { try await studio.engine.cacheCounts().entries == 2 }
      let digest = MemoryImageStore.digest(of: bytes)
      if isGone {
        try await studio.workshop.images.remove(ImageName(digest))
      } else {
        studio.workshop.images.harm(digest, with: [UInt8](repeating: 1, count: bytes.count))
      }
      // The last rendering may be so recent that a new request still gets its result.
      try await Self.eventually {
        let again = try await studio.open(rendition)
        return again == bytes && studio.renderer.begun == 2
      }
      try await Self.eventually { studio.workshop.images.digests.contains(digest) }
    }
  }

  @Test("the least recently used variant is evicted")
  func evicted() async throws {
    try await Self.open {
      $0.cache.disk = 2_500
    } _: { studio in
      studio.renderer.pad(to: 1_000)
      let renditions = try (1...3).map { width in try studio.rendition { $0.width = width } }
      for (number, rendition) in renditions.enumerated() {
        studio.workshop.clock.advance(by: .seconds(1))
        _ = try await studio.open(rendition)
        try await Self.eventually {
          try await studio.workshop.store.variant(rendition.id) != nil
        }
        if number == 1 {
          studio.workshop.clock.advance(by: .seconds(1))
          _ = try await studio.open(renditions[0])
          await studio.engine.housekeeping.runRound()
        }
      }
      var kept: [Bool] = []
      for rendition in renditions {
        kept.append(try await studio.workshop.store.variant(rendition.id) != nil)
      }
      #expect(kept == [true, false, true])
    }
  }

  @Test("a variant is not cached if the cache is off or too small")
  func unkept() async throws {
    for adjust in [{ $0.cache.isEnabled = false }, { $0.cache.disk = 60 }]
      as [(inout JobEngine.Configuration) -> Void]
    {
      try await Self.open(adjust) { studio in
        studio.renderer.pad(to: 100)
        let rendition = try studio.rendition { $0.width = 5 }
        for _ in 0..<2 { #expect(try await studio.open(rendition).count >= 100) }
        #expect(studio.renderer.begun == 2)
        #expect(try await studio.workshop.store.variant(rendition.id) == nil)
      }
    }
  }

  @Test("a variant of a no-store job is not cached")
  func unstored() async throws {
    try await Self.open(mode: .noStore) { studio in
      let rendition = try studio.rendition { $0.width = 5 }
      for _ in 0..<2 { _ = try await studio.open(rendition) }
      #expect(studio.renderer.begun == 2)
      #expect(try await studio.engine.cacheCounts().entries == 0)
    }
  }

  @Test("variants are deleted with the cache, with their URL's entries and with a purged job")
  func dropped() async throws {
    try await Self.open { studio in
      let rendition = try studio.rendition { $0.width = 5 }
      let store = studio.workshop.store
      func renderAndKeep() async throws {
        // The last rendering may be so recent that a new request still gets its result, although it was
        // deleted.
        try await Self.eventually {
          _ = try await studio.open(rendition)
          return try await store.variant(rendition.id) != nil
        }
      }
      try await renderAndKeep()
      let url = try #require(SourceURL("https://a.example/a.png"))
      #expect(try await studio.engine.deleteFromCache(url) == 2)
      #expect(try await store.variant(rendition.id) == nil)
      try await renderAndKeep()
      #expect(try await studio.engine.deleteFromCache(nil) == 1)
      #expect(try await store.variant(rendition.id) == nil)
      try await renderAndKeep()
      try await studio.engine.purge(studio.id, for: Workshop.me)
      #expect(try await store.variant(rendition.id) == nil)
      #expect(studio.renderer.begun == 3)
    }
  }

  @Test("no variant is made of an image that is missing or corrupt", arguments: [true, false])
  func gone(isGone: Bool) async throws {
    try await Self.open { studio in
      if isGone {
        try await studio.workshop.images.remove(ImageName(studio.image.digest))
      } else {
        studio.workshop.images.harm(studio.image.digest, with: Array("no".utf8))
      }
      await #expect(throws: JobsError.imageGone) {
        _ = try await studio.open(try studio.rendition())
      }
      #expect(studio.renderer.begun == 0)
    }
  }

  @Test("a request for a variant of a job that is purged meanwhile finds no job")
  func purgedMeanwhile() async throws {
    try await Self.open { studio in
      let rendition = try studio.rendition()
      try await studio.engine.purge(studio.id, for: Workshop.me)
      await #expect(throws: JobsError.unknownJob) { _ = try await studio.open(rendition) }
    }
  }

  @Test("stopping the service stops renderings")
  func draining() async throws {
    try await Self.open {
      $0.renderingsAtOnce = 1
    } _: { studio in
      studio.renderer.hold()
      let first = studio.request(try studio.rendition { $0.width = 1 })
      try await Self.eventually { studio.renderer.begun == 1 }
      let second = studio.request(try studio.rendition { $0.width = 2 })
      try await Task.sleep(for: .milliseconds(20))
      await studio.engine.drain(within: .zero)
      #expect(await first.value == .failure(.draining))
      #expect(await second.value == .failure(.draining))
      #expect(studio.renderer.underWay == 0)
      await #expect(throws: JobsError.draining) {
        _ = try await studio.open(try studio.rendition { $0.width = 3 })
      }
    }
  }

  @Test("variants are not offered without a renderer")
  func without() async throws {
    let fetcher = ScriptedFetcher()
    fetcher.answer("https://a.example/a.png", with: .pieces([ok], total: ok.count))
    try await Workshop.open(fetcher: fetcher) { workshop in
      #expect(workshop.engine.outputFormats == [])
      let id = try await workshop.submit("https://a.example/a.png")
      let image = try #require(try await workshop.finished(id).image)
      #expect(workshop.engine.rendition(of: image, as: Variant(format: .png)) == nil)
    }
  }
}
