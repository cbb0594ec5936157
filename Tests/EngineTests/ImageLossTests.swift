import SQL
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Images whose bytes are missing or corrupt")
struct ImageLossTests {
  private let url = "https://a.example/a.png"

  /// Opens a workshop with one job that has succeeded.
  private func withImage(
    memory: Int = 0, _ body: (Workshop, JobID, StoredImage) async throws -> Void
  ) async throws {
    let fetcher = ScriptedFetcher()
    fetcher.answer(url, with: .pieces([ok], total: ok.count))
    try await Workshop.open(fetcher: fetcher, { $0.cache.memory = memory }) { shop in
      let id = try await shop.submit(url)
      let image = try #require(try await shop.finished(id).image)
      try await body(shop, id, image)
    }
  }

  @Test("a lost image is not served, and its job can be fetched again", arguments: [true, false])
  func lost(isGone: Bool) async throws {
    try await withImage { shop, id, image in
      let sharing = try await shop.submit(url)
      #expect(try await shop.finished(sharing).image?.digest == image.digest)
      if isGone {
        try await shop.images.remove(ImageName(image.digest))
      } else {
        shop.images.harm(image.digest, with: Array("no then some bytes".utf8))
      }
      let job = try await shop.engine.job(id, for: Workshop.me).job
      await #expect(throws: JobsError.imageGone) { try await shop.engine.openImage(of: job) }
      for id in [id, sharing] {
        #expect(try await shop.engine.job(id, for: Workshop.me).job.image?.isKept == false)
      }
      #expect(shop.images.digests.isEmpty)
      #expect(try await shop.store.counts().images == 0)
      _ = try await shop.engine.refetch(id, for: Workshop.me)
      #expect(try await shop.finished(id).image?.isKept == true)
      let bytes = try await shop.engine.openImage(image.digest)
      #expect(bytes?.read(at: 0, count: ok.count) == ok)
      #expect(shop.fetcher.requests.count == 2)
    }
  }

  @Test(
    "a request for the image of a job that is purged meanwhile finds no job",
    arguments: [true, false])
  func purged(isPublished: Bool) async throws {
    try await withImage { shop, id, image in
      let job = try await shop.engine.job(id, for: Workshop.me).job
      if isPublished {
        try await shop.engine.purge(id, for: Workshop.me)
      } else {
        // Another instance purged the job, and its event has not arrived.
        _ = try await shop.store.remove(id) { _ in true }
        try await shop.images.remove(ImageName(image.digest))
      }
      await #expect(throws: JobsError.unknownJob) { try await shop.engine.openImage(of: job) }
    }
  }

  @Test("a corrupt image answers no later job from the cache")
  func cache() async throws {
    try await withImage { shop, _, image in
      shop.images.harm(image.digest, with: Array("no then some bytes".utf8))
      let next = try await shop.submit(url)
      #expect(try await shop.finished(next).image?.isKept == true)
      #expect(shop.fetcher.requests.count == 2)
      let bytes = try await shop.engine.openImage(image.digest)
      #expect(bytes?.read(at: 0, count: ok.count) == ok)
    }
  }

  @Test("an image in memory is served although its file is corrupt")
  func memory() async throws {
    try await withImage(memory: 1 << 20) { shop, _, image in
      #expect(try await shop.engine.openImage(image.digest) != nil)
      shop.images.harm(image.digest, with: Array("no then some bytes".utf8))
      let bytes = try await shop.engine.openImage(image.digest)
      #expect(bytes?.read(at: 0, count: ok.count) == ok)
    }
  }

  @Test("a lost image stays with a load that has just reserved it")
  func reserved() async throws {
    try await withImage { shop, id, image in
      let holder = JobIDSequence().next(at: shop.clock.now)
      let other = try await shop.store.register(for: .seconds(3_600))
      _ = try await shop.store.reserve(
        image.digest, bytes: image.bytes, as: holder, of: other, limit: .max)
      try await shop.images.remove(ImageName(image.digest))
      #expect(try await shop.engine.openImage(image.digest) == nil)
      #expect(try await shop.engine.job(id, for: Workshop.me).job.image?.isKept == true)
      try await shop.store.release(holder)
    }
  }
}

@Suite("A store without free space")
struct StorageRoomTests {
  /// Returns the error of a submission while the store fails with `error`. Tries again if housekeeping got
  /// the error instead.
  private func refusal(by error: StoreError, in shop: Workshop) async throws -> JobsError {
    while true {
      await shop.store.calls.fail(with: [error])
      do {
        _ = try await shop.submit("https://a.example/b.png") { $0.cacheMode = .noStore }
      } catch let error as JobsError {
        return error
      }
    }
  }

  @Test("a full store makes the service refuse submissions until there is space again")
  func readiness() async throws {
    let fetcher = ScriptedFetcher()
    fetcher.answer("https://a.example/a.png", with: .pieces([ok], total: ok.count))
    try await Workshop.open(fetcher: fetcher) { shop in
      let kept = try await shop.submit("https://a.example/a.png")
      let image = try #require(try await shop.finished(kept).image)
      #expect(shop.engine.state == .ready)
      shop.images.setRoom(false)
      let refused = try await refusal(by: .full, in: shop)
      #expect(refused == .store(.full))
      #expect(shop.engine.state == .full)
      #expect(try await shop.engine.openImage(image.digest) != nil)
      await #expect(throws: JobsError.store(.full)) {
        _ = try await shop.submit("https://a.example/a.png")
      }
      #expect(shop.engine.state == .full)
      shop.images.setRoom(true)
      #expect(await poll { shop.engine.state == .ready })
      let tried = try await shop.submit("https://a.example/a.png")
      #expect(try await shop.finished(tried).phase == .success)
    }
  }

  @Test(
    "a job that waits while the disk is full runs once there is space, although nothing is submitted"
  )
  func waiting() async throws {
    let fetcher = ScriptedFetcher()
    let (opened, gate) = AsyncStream.makeStream(of: Void.self)
    fetcher.answer(
      "https://a.example/held.png", with: .waits(after: [], { for await _ in opened {} }, then: ok))
    fetcher.answer("https://a.example/next.png", with: .pieces([ok], total: ok.count))
    try await Workshop.open(fetcher: fetcher, { $0.workers = 1 }) { shop in
      let held = try await shop.submit("https://a.example/held.png")
      let next = try await shop.submit("https://a.example/next.png")
      shop.images.setRoom(false)
      _ = try await refusal(by: .full, in: shop)
      gate.finish()
      _ = try await shop.finished(held)
      // The idle worker asks for the next job, and gets none.
      try await Task.sleep(for: .milliseconds(50))
      #expect(shop.engine.state == .full)
      shop.images.setRoom(true)
      #expect(try await shop.finished(next).phase == .success)
    }
  }

  @Test("another failure of the store does not count as a full disk")
  func otherFaults() async throws {
    try await Workshop.open { shop in
      let fault = StoreError.unavailable(detail: "x")
      let refused = try await refusal(by: fault, in: shop)
      #expect(refused == .store(fault))
      #expect(shop.engine.state != .full)
    }
  }
}
