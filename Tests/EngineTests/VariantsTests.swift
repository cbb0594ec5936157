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

    /// A request of its own, which may be cancelled.
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

    func picture(_ rendition: Rendition) -> [UInt8] {
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
        // In memory nothing would be seen of the disk.
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

  @Test("are rendered once for fifty who ask at the same time")
  func shared() async throws {
    try await Self.open { studio in
      studio.renderer.hold()
      let rendition = try studio.rendition { $0.width = 5 }
      let requests = (0..<50).map { _ in studio.request(rendition) }
      try await Self.eventually { studio.renderer.begun == 1 }
      studio.renderer.hold(false)
      for request in requests {
        #expect(await request.value == .success(studio.picture(rendition)))
      }
      #expect(try await studio.open(rendition) == studio.picture(rendition))
      #expect(studio.renderer.begun == 1)
    }
  }

  @Test("of one picture share a decode: those that come while one is under way share the next")
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
      // One that is left alone leaves the others' decode as it is.
      let left = studio.request(try studio.rendition { $0.width = 5 })
      try await Self.eventually { studio.engine.variants?.load.waiting == 4 }
      left.cancel()
      #expect(await left.value == .failure(.abandoned))
      #expect(studio.renderer.begun == 1)
      studio.renderer.hold(false)
      for (request, rendition) in zip(requests, renditions) {
        #expect(await request.value == .success(studio.picture(rendition)))
      }
      #expect(studio.renderer.begun == 2)
      #expect(studio.renderer.order.map(\.width) == [1, 3, 4, 2])
    }
  }

  @Test("of one picture stay apart where they take too much memory together")
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
      try await Self.eventually { studio.engine.variants?.load.waiting == 3 }
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      #expect(studio.renderer.begun == 3)
    }
  }

  @Test("those who leave don't end it for the others; the last one's leaving does")
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
      // Who asks now is not given what was stopped.
      studio.renderer.hold(false)
      #expect(try await studio.open(rendition) == studio.picture(rendition))
    }
  }

  @Test("one left while it waits for its turn is never begun")
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

  @Test("no more at once than allowed, the others by priority; beyond the bound they are refused")
  func bounded() async throws {
    // AVIF is written alone, so that one picture is enough for all of them.
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
      try await Self.eventually { studio.engine.variants?.load.waiting == 3 }
      let refused = try studio.rendition { ($0.width, $0.format) = (6, .avif) }
      #expect(await studio.request(refused).value == .failure(.renderingsFull))
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      #expect(studio.renderer.mostUnderWay <= 2)
      #expect(studio.renderer.order.map(\.width).prefix(3) == [1, 2, 5])
      #expect(Set(studio.renderer.order.map(\.width)) == [1, 2, 3, 4, 5])
      #expect(try await studio.open(refused) == studio.picture(refused), "there is room again")
    }
  }

  @Test("of one owner, however many and urgent, have another's wait for few of them")
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
            : studio.request(rendition, by: Owner("somebody else")))
        try await Self.eventually {
          studio.renderer.begun == 1 && studio.engine.variants?.load.waiting == width - 1
        }
      }
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      let place = try #require(studio.renderer.order.map(\.width).firstIndex(of: 9))
      #expect(place <= 3)
    }
  }

  @Test("of one owner, however many wait, leave places to another's")
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
      try await Self.eventually { studio.engine.variants?.load.waiting == 4 }
      let refused = try ask(6, by: "b")
      #expect(await refused.value == .failure(.renderingsFull))
      // The next free place is the other's.
      let left = requests.removeLast()
      left.cancel()
      #expect(await left.value == .failure(.abandoned))
      let again = try ask(5, by: "a")
      try await Task.sleep(for: .milliseconds(20))
      requests.append(try ask(6, by: "b"))
      try await Self.eventually { studio.engine.variants?.load.waiting == 4 }
      studio.renderer.hold(false)
      for request in requests { #expect((try? await request.value.get()) != nil) }
      #expect(await again.value == .failure(.renderingsFull))
    }
  }

  @Test("wait for the memory that decodes share, and are refused where all of it is too little")
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

  @Test("a failure is told to all, and tried again for the next")
  func failing() async throws {
    try await Self.open { studio in
      studio.renderer.fail(with: .cutShort)
      let rendition = try studio.rendition()
      await #expect(throws: JobsError.unrenderable(.cutShort)) {
        _ = try await studio.open(rendition)
      }
      studio.renderer.fail(with: nil)
      #expect(try await studio.open(rendition) == studio.picture(rendition))
    }
  }

  @Test("are kept in the cache, counted there, and found by the next service")
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

  @Test("one whose bytes are harmed or gone is rendered again", arguments: [true, false])
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
      // The one before may be so new that it is still given to whoever asks.
      try await Self.eventually {
        let again = try await studio.open(rendition)
        return again == bytes && studio.renderer.begun == 2
      }
      try await Self.eventually { studio.workshop.images.digests.contains(digest) }
    }
  }

  @Test("the least recently used gives way")
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
          await studio.engine.housekeeping.tidy()
        }
      }
      var kept: [Bool] = []
      for rendition in renditions {
        kept.append(try await studio.workshop.store.variant(rendition.id) != nil)
      }
      #expect(kept == [true, false, true])
    }
  }

  @Test("nothing is kept with the cache off, or of what is larger than it")
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

  @Test("nothing is kept for a job that asked for no-store")
  func unstored() async throws {
    try await Self.open(mode: .noStore) { studio in
      let rendition = try studio.rendition { $0.width = 5 }
      for _ in 0..<2 { _ = try await studio.open(rendition) }
      #expect(studio.renderer.begun == 2)
      #expect(try await studio.engine.cacheCounts().entries == 0)
    }
  }

  @Test("go with the cache, with their URL's entries, and with a purged job")
  func dropped() async throws {
    try await Self.open { studio in
      let rendition = try studio.rendition { $0.width = 5 }
      let store = studio.workshop.store
      func renderAndKeep() async throws {
        // The one before may be so new that it is still given to whoever asks, dropped or not.
        try await Self.eventually {
          _ = try await studio.open(rendition)
          return try await store.variant(rendition.id) != nil
        }
      }
      try await renderAndKeep()
      let url = try #require(SourceURL("https://a.example/a.png"))
      #expect(try await studio.engine.dropFromCache(url) == 2)
      #expect(try await store.variant(rendition.id) == nil)
      try await renderAndKeep()
      #expect(try await studio.engine.dropFromCache(nil) == 1)
      #expect(try await store.variant(rendition.id) == nil)
      try await renderAndKeep()
      try await studio.engine.purge(studio.id, for: Workshop.me)
      #expect(try await store.variant(rendition.id) == nil)
      #expect(studio.renderer.begun == 3)
    }
  }

  @Test("none of an image whose bytes are gone or harmed", arguments: [true, false])
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

  @Test("the service's end stops them")
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

  @Test("without a renderer there are none")
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
