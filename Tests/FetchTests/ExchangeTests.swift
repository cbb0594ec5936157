import Jobs
import Testing

@testable import Fetch

@Suite("The exchange between the loop's thread and the task")
struct ExchangeTests {
  private static func open() throws -> (RunningLoop, TransferExchange) {
    let configuration = CurlFetcher.Configuration()
    let settings = TransferSettings(configuration)
    let running = RunningLoop(try EventLoop(settings: settings) { _ in })
    return (running, TransferExchange(id: 1, loop: running.loop, capacity: 1_000, maxBytes: 1_000))
  }

  private static func begin(_ exchange: TransferExchange) {
    exchange.deliver(
      ResponseHead(status: 200, fields: [], contentLength: 10, timings: TransferTimings()))
    [UInt8](repeating: 7, count: 4).withUnsafeBufferPointer { _ = exchange.append($0) }
  }

  @Test("data received before a transfer broke is returned, however late it is read")
  func brokenBeforeAsked() async throws {
    let (running, exchange) = try Self.open()
    Self.begin(exchange)
    exchange.finish(.truncated(received: 4, expected: 10))
    #expect(try await exchange.head().status == 200)
    #expect(try await exchange.next() == [7, 7, 7, 7])
    await #expect(throws: FetchError.truncated(received: 4, expected: 10)) {
      try await exchange.next()
    }
    withExtendedLifetime(running) {}
  }

  @Test("a cancelled exchange returns nothing")
  func cancelledBeforeAsked() async throws {
    let (running, exchange) = try Self.open()
    Self.begin(exchange)
    exchange.cancel()
    await #expect(throws: FetchError.cancelled) { try await exchange.head() }
    await #expect(throws: FetchError.cancelled) { try await exchange.next() }
    withExtendedLifetime(running) {}
  }
}
