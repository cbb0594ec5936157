import Jobs
import TestSupport
import Testing

@Suite("A token bucket")
struct TokenBucketTests {
  private typealias Rate = TokenBucket.Rate
  private let start = ContinuousClock.now

  @Test("it allows its burst at once, then its rate")
  func bucket() {
    let rate = Rate(perSecond: 2, burst: 3)
    var bucket = TokenBucket(rate, at: start)
    func consume(after time: Duration) -> Bool { bucket.consume(at: start + time, rate) }
    for _ in 0..<3 { #expect(consume(after: .zero)) }
    #expect(!consume(after: .zero))
    #expect(bucket.wait(for: 1, at: start, rate) == 0.5)
    #expect(bucket.wait(for: 1, at: start + .milliseconds(250), rate) == 0.25)
    #expect(consume(after: .milliseconds(500)))
    #expect(consume(after: .seconds(3600)))
    // A time before the last use adds nothing.
    #expect(bucket.tokens(at: start, rate) == 2)
    #expect(consume(after: .zero) && bucket.tokens(at: start + .seconds(3600), rate) == 1)
  }

  @Test("borrowed tokens are made up for at the rate")
  func borrows() {
    let rate = Rate(perSecond: 250, burst: 0)
    var bucket = TokenBucket(rate, at: start)
    bucket.borrow(500, at: start, rate)
    #expect(bucket.wait(for: 0, at: start, rate) == 2)
    bucket.borrow(250, at: start + .seconds(1), rate)
    #expect(bucket.wait(for: 0, at: start + .seconds(1), rate) == 2)
    #expect(bucket.tokens(at: start + .seconds(9), rate) == 0)
  }

  @Test(
    "in no interval it allows more than the burst and the rate, and it never refuses for longer than it reports",
    arguments: 0..<20)
  func random(seed: UInt64) {
    var random = SeededNumbers(state: seed)
    let rate = Rate(
      perSecond: Double.random(in: 0.1...50, using: &random),
      burst: Double(Int.random(in: 1...20, using: &random)))
    var bucket = TokenBucket(rate, at: start)
    var (now, allowed) = (start, [ContinuousClock.Instant]())
    for _ in 0..<400 {
      now += .milliseconds(Int.random(in: 0...Int(2_000 / rate.perSecond), using: &random))
      if bucket.consume(at: now, rate) {
        allowed.append(now)
      } else {
        let wait = bucket.wait(for: 1, at: now, rate)
        #expect(wait > 0 && wait <= 1 / rate.perSecond + 1e-9)
        // Half of the wait is too early, all of it is enough.
        var copy = bucket
        let isEarly = copy.consume(at: now + .seconds(wait / 2), rate)
        let isInTime = copy.consume(at: now + .seconds(wait + 1e-6), rate)
        #expect(!isEarly && isInTime)
      }
    }
    #expect(!allowed.isEmpty)
    // The most that any interval has beyond its limit; one check for all, because each check costs time.
    var excess = -Double.infinity
    for first in allowed.indices {
      for last in allowed.indices.dropFirst(first) {
        let time = allowed[first].duration(to: allowed[last])
        let most = rate.burst + rate.perSecond * (time / .seconds(1))
        excess = max(excess, Double(last - first + 1) - most)
      }
    }
    #expect(excess <= 1e-6)
  }
}
