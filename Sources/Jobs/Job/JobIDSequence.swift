internal import Synchronization

/// Creates IDs that increase even within one millisecond. The 12 bits after the version are a counter (RFC
/// 9562 section 6.2, method 1). Therefore the jobs of a batch sort in the order in which they were submitted.
package final class JobIDSequence: Sendable {
  private struct Last {
    var milliseconds: Int64 = 0
    var counter: UInt64 = 0
  }
  private let last = Mutex(Last())

  package init() {}

  package func next(at moment: Timestamp) -> JobID {
    let (milliseconds, counter) = last.withLock { last in
      if moment.milliseconds > last.milliseconds {
        // Starts at a random value in the lower half: IDs of several instances interleave, and the counter
        // has room to grow.
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
