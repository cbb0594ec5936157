import Jobs
import Testing

@Suite("Events between instances")
struct NewsExchangeTests {
  private let a = Instance(number: 1)
  private let b = Instance(number: 2)

  @Test("an instance that reads too slowly loses the oldest events, and is notified of the loss")
  func lost() async throws {
    let exchange = NewsExchange(capacity: 16)
    let stream = exchange.news(for: b)
    let sent = (0..<500).map { News.removed([JobID(at: Timestamp(milliseconds: $0))]) }
    for news in sent { exchange.tell(news, from: a) }
    exchange.end(b)
    var received: [News] = []
    for await news in stream { received.append(news) }
    #expect(received.count == 16)
    #expect(received.contains(.lost))
    #expect(received.filter { $0 != .lost } == sent.suffix(received.count { $0 != .lost }))
  }

  @Test("an instance that reads in time receives all events except its own")
  func kept() async throws {
    let exchange = NewsExchange(capacity: 2)
    var stream = exchange.news(for: b).makeAsyncIterator()
    for _ in 0..<10 {
      exchange.tell(.queued, from: b)
      exchange.tell(.cacheDropped, from: a)
      exchange.tell(.queued, from: a)
      let received = [await stream.next(), await stream.next()]
      #expect(received == [.cacheDropped, .queued])
    }
  }
}
