import Jobs
import Testing

@Suite("Events between instances")
struct InstanceEventBusTests {
  private let a = Instance(number: 1)
  private let b = Instance(number: 2)

  @Test("an instance that reads too slowly loses the oldest events, and is notified of the loss")
  func lost() async throws {
    let exchange = InstanceEventBus(capacity: 16)
    let stream = exchange.events(for: b)
    let sent = (0..<500).map { InstanceEvent.removed([JobID(at: Timestamp(milliseconds: $0))]) }
    for news in sent { exchange.publish(news, from: a) }
    exchange.close(b)
    var received: [InstanceEvent] = []
    for await news in stream { received.append(news) }
    #expect(received.count == 16)
    #expect(received.contains(.lost))
    #expect(received.filter { $0 != .lost } == sent.suffix(received.count { $0 != .lost }))
  }

  @Test("an instance that reads in time receives all events except its own")
  func kept() async throws {
    let exchange = InstanceEventBus(capacity: 2)
    var stream = exchange.events(for: b).makeAsyncIterator()
    for _ in 0..<10 {
      exchange.publish(.queued, from: b)
      exchange.publish(.cacheDeleted, from: a)
      exchange.publish(.queued, from: a)
      let received = [await stream.next(), await stream.next()]
      #expect(received == [.cacheDeleted, .queued])
    }
  }
}
