internal import Synchronization

/// Makes ids that grow even within one millisecond (RFC 9562 section 6.2, method 1: the 12 bits after the version are
/// a counter), so that a batch lists in the order in which it was given.
package final class JobIDSequence: Sendable {
  private struct Last {
    var milliseconds: Int64 = 0
    var counter: UInt64 = 0
  }
  private let last = Mutex(Last())

  /// A new sequence.
  package init() {}

  package func next(at moment: Timestamp) -> JobID {
    let (milliseconds, counter) = last.withLock { last in
      if moment.milliseconds > last.milliseconds {
        // Starts in the lower half, so that ids of several services mix and yet there is room to count.
        last = Last(milliseconds: moment.milliseconds, counter: .random(in: 0..<0x800))
      } else if last.counter < 0xFFF {
        last.counter += 1
      } else {
        last = Last(milliseconds: last.milliseconds + 1, counter: 0)
      }
      return (last.milliseconds, last.counter)
    }
    let random = JobID(at: Timestamp(milliseconds: milliseconds))
    return JobID(high: random.high & ~0xFFF | counter, low: random.low)
  }
}
