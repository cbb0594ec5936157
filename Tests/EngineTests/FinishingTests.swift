import Jobs
import SQL
import TestSupport
import Testing

@testable import Engine

@Suite("Jobs between their load and their success", .timeLimit(.minutes(15)))
struct FinishingTests {
  private let url = "http://a.example/x.png"

  @Test("a job occupies no worker while it is delivered")
  func worker() async throws {
    let receiver = SlowReceiver()
    try await Workshop.open(destinations: receiver, { $0.workers = 1 }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: ok.count))
      let id = try await shop.submit(url) { $0.deliveries = [Self.delivery(to: "r.example")] }
      try await until { receiver.begun == 1 }
      #expect(try await shop.finished(shop.submit("http://b.example/")).phase == .success)
      let job = try await shop.engine.job(id, for: Workshop.me).job
      #expect(job.phase == .loading && shop.engine.waiting(of: job)?.reason == .deliver)
      receiver.open()
      #expect(try await shop.finished(id).deliveries.count == 1)
    }
  }

  @Test("a stopped job continues with its missing deliveries and fetches nothing again")
  func durable() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let receiver = SlowReceiver(host: "slow.example")
    var id: JobID?
    try await Workshop.open(store: store, images: images, destinations: receiver) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      id = try await shop.submit(url) {
        $0.deliveries = ["fast.example", "slow.example"].map { Self.delivery(to: $0) }
      }
      try await until { receiver.begun == 2 }
      _ = try await shop.reached(.loading, id!)
    }
    let stopped = try await store.job(id!)
    #expect(stopped?.phase == .queued && stopped?.pending?.deliveries.count == 1)
    receiver.open()
    try await Workshop.open(store: store, images: images, destinations: receiver) { shop in
      let job = try await shop.finished(id!)
      #expect(job.phase == .success && job.deliveries.count == 2 && job.pending == nil)
      #expect(shop.fetcher.requests.isEmpty && receiver.begun == 3)
    }
  }

  @Test("a cancelled job stops while it is rendered or delivered")
  func cancelled() async throws {
    let (renderer, receiver) = (FakeRenderer(), SlowReceiver())
    try await Workshop.open(renderer: renderer, destinations: receiver) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      renderer.hold()
      let rendered = try await shop.submit(url) { $0.variants = [VariantRequest(name: "v")] }
      let delivered = try await shop.submit(url) {
        $0.deliveries = [Self.delivery(to: "r.example")]
      }
      try await until { renderer.begun == 1 && receiver.begun == 1 }
      for id in [rendered, delivered] {
        #expect(try await shop.engine.cancel(id, for: Workshop.me).job.phase == .cancelled)
      }
      try await until { receiver.brokenOff == 1 && shop.engine.loading.loads.isEmpty }
      renderer.hold(false)
    }
  }

  @Test("a job purged while it is rendered or delivered leaves nothing behind")
  func purged() async throws {
    let (renderer, receiver) = (FakeRenderer(), SlowReceiver())
    try await Workshop.open(renderer: renderer, destinations: receiver) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      renderer.hold()
      let rendered = try await shop.submit(url) { $0.variants = [VariantRequest(name: "v")] }
      let dropped = try await shop.submit(url) {
        ($0.variants, $0.dropsOriginal) = ([VariantRequest(name: "v")], true)
      }
      let delivered = try await shop.submit(url) {
        $0.deliveries = [Self.delivery(to: "r.example")]
      }
      try await until { renderer.begun >= 1 && receiver.begun == 1 }
      for id in [rendered, dropped, delivered] {
        try await shop.engine.purge(id, for: Workshop.me)
        await #expect(throws: JobsError.unknownJob) {
          try await shop.engine.job(id, for: Workshop.me)
        }
      }
      renderer.hold(false)
      try await until { receiver.brokenOff == 1 && shop.engine.loading.loads.isEmpty }
      #expect(try await shop.store.leftovers == [])
    }
  }

  @Test("a stopped job is rendered again after the start, from its stored image")
  func rendered() async throws {
    let (store, images, renderer) = (MemoryJobStore(), MemoryImageStore(), FakeRenderer())
    var id: JobID?
    try await Workshop.open(store: store, images: images, renderer: renderer) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      renderer.hold()
      id = try await shop.submit(url) { $0.variants = [VariantRequest(name: "v")] }
      try await until { renderer.begun == 1 }
      let job = try await shop.engine.job(id!, for: Workshop.me).job
      #expect(shop.engine.waiting(of: job)?.reason == .render)
    }
    renderer.hold(false)
    try await Workshop.open(store: store, images: images, renderer: renderer) { shop in
      let job = try await shop.finished(id!)
      #expect(job.phase == .success && job.image?.variants.count == 1)
      #expect(shop.fetcher.requests.isEmpty)
    }
  }

  @Test("a job waits for an equal load that is being stored, and asks no origin")
  func following() async throws {
    try await Workshop.open { shop in
      let fields = [HeaderField(name: "Cache-Control", value: "max-age=600")]
      shop.fetcher.answer(url, with: .responds(200, fields, ok))
      await shop.store.calls.hold(.complete)
      let first = try await shop.submit(url)
      while await shop.store.calls.heldCalls == 0 { await Task.yield() }
      let second = try await shop.submit(url)
      _ = try await shop.reached(.loading, second)
      await shop.store.calls.letGo()
      #expect(try await shop.finished(first).phase == .success)
      #expect(try await shop.finished(second).cache?.status == .hit)
      #expect(shop.fetcher.requests.count == 1)
    }
  }

  private static func delivery(to host: String) -> DeliveryRequest {
    DeliveryRequest(.put(SourceURL("http://\(host)/x")!, headers: []), variant: nil)
  }
}
