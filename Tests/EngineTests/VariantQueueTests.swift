import Jobs
import TestSupport
import Testing

@testable import Engine

@Suite("The queue of variants")
struct VariantQueueTests {
  private static let moment = Timestamp(milliseconds: 1_800_000_000_000)

  /// The queue under test, in a class so that expectations can change it. Renditions of one image are
  /// identified by their widths.
  private final class QueueUnderTest {
    private var queue: VariantQueue
    private let format: OutputFormat
    private let threads = TestThreads()
    private let renderer = FakeRenderer(formats: [.avif, .webp])
    private let image = StoredImage(
      description: ImageDescription(format: .jpeg, width: 1_600, height: 1_200),
      digest: MemoryImageStore.digest(of: ok), bytes: ok.count, url: nil, variant: .regular,
      modifiedAt: VariantQueueTests.moment)

    /// - Parameter format: a decode makes only one AVIF rendition.
    init(places: Int, format: OutputFormat = .avif) {
      queue = VariantQueue(atOnce: 1, maxWaiting: places)
      self.format = format
    }

    var waiting: Int { queue.waiting }

    private func rendition(_ width: Int) -> Rendition {
      var variant = Variant(format: format)
      variant.width = width
      return Rendition(of: image, as: variant, by: renderer)
    }

    /// - Returns: the request's number; nil if it was refused.
    func request(_ width: Int, by owner: String, at priority: Priority = .normal) -> UInt64? {
      let me = queue.number()
      let waiter = VariantQueue.Waiter(owner: Owner(owner), priority: { priority }, keeps: false)
      let entry = queue.enter(rendition(width), me, waiter, at: VariantQueueTests.moment) {
        threads.lane(at: $0)
      }
      if case .refused = entry { return nil }
      return me
    }

    func cancel(_ me: UInt64, _ width: Int) { _ = queue.removeRequest(me, rendition(width).id) }

    /// Begins the next work.
    func begin() -> (number: UInt64, width: Int)? {
      var begun: (number: UInt64, width: Int)?
      queue.startNext { number, work in
        begun = (number, work.rendition.width)
        return Task {}
      }
      return begun
    }

    /// - Returns: the widths that one decode makes.
    func gather(_ number: UInt64) -> [Int] {
      queue.coalesce(number, atMost: 8) { _ in true }.map(\.rendition.width)
    }

    func finish(_ number: UInt64) {
      _ = queue.finish(number, .failure(.abandoned), isBeingKept: false)
    }

    func close() { _ = queue.close() }
  }

  @Test("one owner may use the whole queue, and half of it while others ask")
  func places() throws {
    let line = QueueUnderTest(places: 4)
    let flood = try (1...4).map { width in try #require(line.request(width, by: "a")) }
    #expect(line.request(5, by: "a") == nil && line.request(6, by: "b") == nil)
    line.cancel(flood[0], 1)
    // Owner "b" was refused lately, so the free slot is not for "a" again.
    #expect(line.request(5, by: "a") == nil)
    #expect(line.request(6, by: "b") != nil && line.waiting == 4)
    line.cancel(flood[1], 2)
    line.cancel(flood[2], 3)
    #expect(line.request(5, by: "a") != nil && line.request(7, by: "a") == nil)
    // A request that joins uses no slot.
    #expect(line.request(6, by: "a") != nil && line.waiting == 3)
  }

  @Test("each slot is released once its work begins or no request waits for it")
  func balances() throws {
    let line = QueueUnderTest(places: 4)
    let first = try #require(line.request(1, by: "a"))
    let joined = try #require(line.request(1, by: "b"))
    line.cancel(first, 1)
    #expect(line.waiting == 1, "a request still waits for it")
    line.cancel(joined, 1)
    line.cancel(joined, 1)
    #expect(line.waiting == 0)
    let begun = try #require(line.request(2, by: "a"))
    #expect(line.begin()?.width == 2 && line.waiting == 0)
    line.cancel(begun, 2)
    line.finish(begun)
    // All slots are free, including those of the first two.
    #expect((3...6).allSatisfy { line.request($0, by: "b") != nil } && line.waiting == 4)
    line.close()
    #expect(line.waiting == 0)
  }

  @Test("the slots of all renditions of one decode are released")
  func gathered() throws {
    let line = QueueUnderTest(places: 4, format: .webp)
    for (width, owner) in [(1, "a"), (2, "a"), (3, "b")] {
      #expect(line.request(width, by: owner) != nil)
    }
    let begun = try #require(line.begin())
    #expect(line.waiting == 2)
    #expect(line.gather(begun.number) == [1, 2, 3] && line.waiting == 0)
    #expect((4...7).allSatisfy { line.request($0, by: "c") != nil } && line.waiting == 4)
  }

  @Test("every second turn goes to the next owner, however urgent the work of another one is")
  func turns() {
    let line = QueueUnderTest(places: 100)
    for width in 1...6 { #expect(line.request(width, by: "a", at: .veryHigh) != nil) }
    for (width, owner) in [(7, "b"), (8, "c"), (9, "b")] {
      #expect(line.request(width, by: owner, at: .low) != nil)
    }
    var order: [Int] = []
    while let turn = line.begin() {
      order.append(turn.width)
      line.finish(turn.number)
    }
    #expect(order == [1, 7, 2, 8, 3, 9, 4, 5, 6])
  }
}
