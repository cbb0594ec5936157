import Jobs
import Testing

@Suite("News between instances")
struct NewsExchangeTests {
  private let a = Instance(number: 1)
  private let b = Instance(number: 2)

  @Test("who doesn't keep up loses the oldest, and hears that some were lost")
  func lost() async throws {
    let exchange = NewsExchange(capacity: 16)
    let stream = exchange.news(for: b)
    let told = (0..<500).map { News.removed([JobID(at: Timestamp(milliseconds: $0))]) }
    for news in told { exchange.tell(news, from: a) }
    exchange.end(b)
    var heard: [News] = []
    for await news in stream { heard.append(news) }
    #expect(heard.count == 16)
    #expect(heard.contains(.lost))
    #expect(heard.filter { $0 != .lost } == told.suffix(heard.count { $0 != .lost }))
  }

  @Test("who keeps up hears all, and nothing of its own")
  func kept() async throws {
    let exchange = NewsExchange(capacity: 2)
    var stream = exchange.news(for: b).makeAsyncIterator()
    for _ in 0..<10 {
      exchange.tell(.queued, from: b)
      exchange.tell(.cacheDropped, from: a)
      exchange.tell(.queued, from: a)
      let heard = [await stream.next(), await stream.next()]
      #expect(heard == [.cacheDropped, .queued])
    }
  }
}
