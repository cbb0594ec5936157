internal import Jobs
internal import Metrics
internal import Synchronization

/// A response's body for the one task that reads it. Letting go of it closes the transfer.
final class FetchedBody: ImageBytes {
  private struct State {
    var received = 0
    var isOver = false
  }

  private let exchange: Exchange
  private let metrics: FetchMetrics
  private let running: RunningLoop
  private let mayBeEmpty: Bool
  private let state = Mutex(State())

  init(_ exchange: Exchange, mayBeEmpty: Bool, metrics: FetchMetrics, running: RunningLoop) {
    self.exchange = exchange
    self.mayBeEmpty = mayBeEmpty
    self.metrics = metrics
    self.running = running
  }

  deinit {
    exchange.cancel()
    note(.cancelled)
  }

  func next() async throws(FetchError) -> [UInt8]? {
    do throws(FetchError) {
      guard let bytes = try await exchange.next() else {
        guard mayBeEmpty || state.withLock({ $0.received > 0 }) else { throw .noData }
        note(nil)
        return nil
      }
      state.withLock { $0.received += bytes.count }
      metrics.bytes.increment(by: bytes.count)
      return bytes
    } catch {
      note(error)
      throw error
    }
  }

  /// Counts the fetch's end, the first time.
  private func note(_ error: FetchError?) {
    let isFirst = state.withLock { state in
      defer { state.isOver = true }
      return !state.isOver
    }
    if isFirst { metrics.count(error) }
  }
}
