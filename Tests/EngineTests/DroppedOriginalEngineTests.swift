import Jobs
import TestSupport
import Testing

@testable import Engine

@Suite("Jobs that drop the original", .timeLimit(.minutes(15)))
struct DroppedOriginalTests {
  private let url = "http://a.example/x.png"

  @Test("a job gets its own variants although an equal job was cancelled before")
  func left() async throws {
    let renderer = FakeRenderer()
    try await Self.open(renderer) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      shop.codec.hangs(true)
      var ids: [JobID] = []
      for most in 1...3 { ids.append(try await submit(1...most, shop)) }
      for id in ids { #expect(try await shop.reached(.loading, id).phase == .loading) }
      renderer.hold()
      shop.codec.hangs(false)
      try await until { renderer.begun == 1 }
      _ = try await shop.engine.cancel(ids[0], for: Workshop.me)
      renderer.hold(false)
      for id in ids[1...] { try await Self.expectVariants(of: id, shop) }
      #expect(shop.fetcher.requests.count == 1)
      // The variant of the cancelled job was made, but no job has it, nor the image.
      for widths in [1...1, 4...4] {
        try await Self.expectVariants(of: submit(widths, shop), shop)
      }
      #expect(shop.fetcher.requests.count == 3)
    }
  }

  private static func open(
    _ renderer: FakeRenderer, _ body: (Workshop) async throws -> Void
  ) async throws {
    let store = MemoryJobStore(largestEmbedded: 64 << 10)
    try await Workshop.open(store: store, renderer: renderer) { shop in try await body(shop) }
  }

  private func submit(_ widths: ClosedRange<Int>, _ shop: Workshop) async throws -> JobID {
    try await shop.submit(url) {
      $0.dropsOriginal = true
      $0.variants = widths.map { width in
        var variant = VariantRequest(name: "w\(width)")
        variant.width = width
        return variant
      }
    }
  }

  /// Checks that all variants of the job are available with the right bytes.
  private static func expectVariants(of id: JobID, _ shop: Workshop) async throws {
    let job = try await shop.finished(id)
    let image = try #require(job.image)
    for request in job.submission.variants {
      let rendition = try #require(
        shop.engine.renditions.variants?.rendition(of: image, as: request))
      let opened = try await shop.engine.open(rendition, for: job).bytes
      #expect(
        opened.read(at: 0, count: opened.count)
          == FakeRenderer.picture(rendition.variant, of: ok))
    }
  }
}
