import Testing

@testable import Jobs

@Suite("The retry policy")
struct RetryPolicyTests {
  private let policy = RetryPolicy()
  private let timeout = JobFailure.fetch(.timeout(seconds: 1))

  @Test("the back-off doubles after each try, with full jitter, up to the maximum")
  func backoff() {
    #expect(policy.delay(after: timeout, tries: 1, allowed: 20, dice: 1) == .milliseconds(500))
    #expect(policy.delay(after: timeout, tries: 2, allowed: 20, dice: 1) == .seconds(1))
    #expect(policy.delay(after: timeout, tries: 3, allowed: 20, dice: 0.5) == .seconds(1))
    #expect(policy.delay(after: timeout, tries: 19, allowed: 20, dice: 1) == .seconds(30))
    #expect(policy.delay(after: timeout, tries: 1, allowed: 20, dice: 0) == .zero)
  }

  @Test("retries end at the maximum of tries")
  func ends() {
    #expect(policy.delay(after: timeout, tries: 3, allowed: nil, dice: 1) == nil)
    #expect(policy.delay(after: timeout, tries: 1, allowed: 1, dice: 1) == nil)
  }

  @Test(
    "internal errors and full disks are retried",
    arguments: [JobFailure.internal, .storageFull])
  func ours(failure: JobFailure) {
    #expect(policy.delay(after: failure, tries: 2, allowed: nil, dice: 1) == .seconds(1))
    #expect(policy.delay(after: failure, tries: 3, allowed: nil, dice: 1) == nil)
  }

  @Test("the wait obeys the origin's Retry-After, up to the maximum")
  func retryAfter() {
    func delay(_ seconds: Double) -> Duration? {
      policy.delay(
        after: .fetch(.originStatus(503, retryAfter: seconds)), tries: 1, allowed: nil, dice: 0)
    }
    #expect(delay(7) == .seconds(7))
    #expect(delay(3600) == .seconds(30))
  }

  @Test("if several URLs failed, the longest wait decides")
  func decisive() {
    func status(_ status: Int, _ seconds: Double? = nil) -> JobFailure {
      .fetch(.originStatus(status, retryAfter: seconds))
    }
    for (last, earlier, expected) in [
      (status(503), nil, status(503)), (status(404), nil, status(404)),
      (status(503), status(503, 10), status(503, 10)),
      (status(503, 10), status(429, 7), status(503, 10)), (status(404), status(503), status(503)),
      (status(503), status(404), status(503)), (status(403), status(404), status(403)),
      (timeout, .internal, timeout),
    ] as [(JobFailure, JobFailure?, JobFailure)] {
      #expect(policy.decisive(last, or: earlier) == expected)
    }
  }

  @Test(
    "only temporary errors are retried",
    arguments: [
      (JobFailure.fetch(.originStatus(404, retryAfter: nil)), false),
      (.fetch(.originStatus(429, retryAfter: nil)), true),
      (.fetch(.originStatus(504, retryAfter: nil)), true),
      (.fetch(.originStatus(501, retryAfter: nil)), false), (.fetch(.stalled(seconds: 1)), true),
      (.fetch(.truncated(received: 1, expected: 2)), true), (.fetch(.tooLarge(limit: 1)), false),
      (.fetch(.tlsFailure(host: "a", detail: "")), false), (.codec(.cutShort), false),
      (.storageFull, true), (.internal, true), (.fetch(.cancelled), true), (.notCached, false),
      (.fetch(.connectFailure(host: "a", detail: "")), true),
      (.fetch(.noResponse(host: "a", detail: "")), true),
      (.fetch(.dnsFailure(host: "a", detail: "")), true), (.fetch(.badHost("a..b")), false),
      (.codec(.noDecoder), true), (.fetch(.badRedirect(status: 503, location: nil)), false),
    ])
  func retryable(failure: JobFailure, expected: Bool) {
    #expect(failure.isRetryable == expected)
  }
}
