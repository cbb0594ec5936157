/// Wakes a loop. Any number of tasks send it; one loop receives it. Signals that are sent before the loop has received
/// the last one count as one.
///
/// Parts that wake each other are given the same signal, so neither has to know the other.
package struct Signal: Sendable {
  /// Yields once the signal was sent. Ends after ``finish()``.
  package let arrivals: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  package init() {
    (arrivals, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
  }

  package func send() { continuation.yield() }

  package func finish() { continuation.finish() }
}
