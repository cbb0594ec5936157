internal import Jobs
internal import Metrics
internal import Synchronization

/// A response's body for the one task that reads it. Releasing it closes the transfer.
final class FetchedBody: ImageBytes {
  private struct State {
    var received = 0
    var counted = 0
    var isOver = false
  }

  private let exchange: TransferExchange
  /// The exchange's bytes with the content codings decoded.
  private let content: any ImageBytes
  private let isCoded: Bool
  private let metrics: FetchMetrics
  private let running: RunningLoop
  private let mayBeEmpty: Bool
  private let state = Mutex(State())

  /// - Parameters:
  ///   - codings: The content codings, in the order they were applied.
  ///   - maxBytes: The limit for the output of each decoder.
  init(
    _ exchange: TransferExchange, codings: [ContentCoding], maxBytes: Int, mayBeEmpty: Bool,
    metrics: FetchMetrics, running: RunningLoop
  ) {
    self.exchange = exchange
    content = codings.reversed().reduce(exchange) { source, coding in
      DecodedContent(source, coding: coding, maxBytes: maxBytes)
    }
    isCoded = !codings.isEmpty
    self.mayBeEmpty = mayBeEmpty
    self.metrics = metrics
    self.running = running
    if mayBeEmpty { recordEnd(nil) }  // the body of a 304 is usually not read
  }

  deinit {
    exchange.cancel()
    recordEnd(.cancelled)
  }

  var codedCount: Int { isCoded ? exchange.received : 0 }

  func next() async throws(FetchError) -> [UInt8]? {
    do throws(FetchError) {
      guard let bytes = try await content.next() else {
        guard mayBeEmpty || state.withLock({ $0.received > 0 }) else { throw .noData }
        recordEnd(nil)
        return nil
      }
      count(bytes.count)
      return bytes
    } catch {
      recordEnd(error)
      throw error
    }
  }

  private func count(_ taken: Int) {
    let sent = isCoded ? exchange.received : nil
    let new = state.withLock { state in
      state.received += taken
      defer { state.counted = sent ?? state.received }
      return (sent ?? state.received) - state.counted
    }
    metrics.bytes.increment(by: new)
  }

  /// Counts the end of the fetch once; later calls do nothing.
  private func recordEnd(_ error: FetchError?) {
    let isFirst = state.withLock { state in
      defer { state.isOver = true }
      return !state.isOver
    }
    if isFirst { metrics.count(error) }
  }
}
