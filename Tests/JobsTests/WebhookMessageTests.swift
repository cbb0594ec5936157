import Jobs
import Testing

@Suite("A webhook message")
struct WebhookMessageTests {
  private static let start = Timestamp(milliseconds: 1_700_000_000_000)

  private func message() throws -> WebhookMessage {
    var submission = Submission(source: .local("a.png"))
    submission.webhook = Webhook(
      url: try #require(SourceURL("https://a.example/")), events: WebhookEvent.jobEnds)
    var job = Job(
      id: JobID(at: Self.start), owner: .anonymous, submission: submission, priority: .normal,
      tags: [], createdAt: Self.start)
    _ = job.cancel(at: Self.start, keptFor: .seconds(1))
    return try #require(WebhookMessage(endOf: job, after: .queued))
  }

  private func answer(
    _ status: Int?, at moment: Timestamp = start, retryAfter: Duration? = nil
  ) -> WebhookAnswer {
    WebhookAnswer(
      at: moment, time: .milliseconds(20), status: status, retryAfter: retryAfter,
      error: status == nil ? FetchError.stalled(seconds: 1) : nil)
  }

  @Test("a message is retried on schedule, at most a quarter later")
  func schedule() throws {
    for dice in [0, 0.5, 1.0] {
      var message = try message()
      var waits: [Double] = []
      while let moment = message.nextTry {
        message.recordAnswer(answer(503, at: moment), under: .standard, dice: dice)
        if let next = message.nextTry { waits.append((next - moment).inSeconds - 0.02) }
      }
      let expected = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400].map {
        $0 * (1 + dice / 4)
      }
      #expect(
        zip(waits, expected).allSatisfy { abs($0 - $1) < 0.01 } && waits.count == 9, "\(waits)")
      #expect(message.state == .failed && message.tries.count == 10)
    }
  }

  @Test("a message is delivered by any 2xx, fails at 410, and is retried after a redirect")
  func statuses() throws {
    for (status, state) in [
      (200, WebhookMessage.State.delivered), (204, .delivered), (299, .delivered), (410, .failed),
      (301, .pending), (307, .pending), (404, .pending), (500, .pending), (nil, .pending),
    ] as [(Int?, WebhookMessage.State)] {
      var message = try message()
      message.recordAnswer(answer(status), under: .standard, dice: 0)
      #expect(
        message.state == state && (message.nextTry == nil) == (state != .pending), "\(status ?? 0)")
      let made = try #require(message.tries.first)
      #expect(made.isTaken == (state == .delivered))
      #expect((made.failure == nil) == (status != nil))
    }
  }

  @Test("a message waits for Retry-After up to a day, and never less than scheduled")
  func retryAfter() throws {
    for (asked, waited) in [(1.0, 5.0), (60, 60), (1e7, 86_400)] {
      var message = try message()
      message.recordAnswer(answer(429, retryAfter: .seconds(asked)), under: .standard, dice: 0)
      let wait = try (#require(message.nextTry) - Self.start).inSeconds
      #expect(abs(wait - waited) < 0.1)
    }
  }

  @Test("a message keeps its newest attempts, and restarts its schedule when sent again")
  func bounded() throws {
    var message = try message()
    let id = message.id
    for _ in 0..<40 {
      message.sendAgain(at: Self.start)
      message.recordAnswer(answer(200), under: .standard, dice: 0)
    }
    #expect(message.tries.count == WebhookMessage.mostTries && message.id == id)
  }

  @Test("a message has one signature per secret, equal to that of the Standard Webhooks libraries")
  func signed() throws {
    // The test vector of the Standard Webhooks libraries.
    let secret = try #require(WebhookSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    let body = Array(#"{"test": 2432232314}"#.utf8)
    #expect(
      secret.signature(of: body, id: "msg_p5jXN8AQM9LWM0D4loKWxJek", moment: 1_614_265_330)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
    let other = try #require(WebhookSecret("whsec_" + String(repeating: "A", count: 32)))
    let message = try message()
    func field(_ name: String, _ secrets: [WebhookSecret]) -> String? {
      message.fields(for: body, at: Self.start, signedWith: secrets).first { $0.name == name }?
        .value
    }
    #expect(field("webhook-id", []) == message.id.description)
    #expect(field("webhook-timestamp", []) == "1700000000")
    #expect(field("webhook-signature", []) == nil)
    let both = try #require(field("webhook-signature", [secret, other]))
    let one = try #require(field("webhook-signature", [secret]))
    #expect(both.hasPrefix(one + " v1,") && both.split(separator: " ").count == 2)
  }

  @Test(
    "a secret that is too short, too long or not base64 is refused",
    arguments: [
      "", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
      "whsec_!!!!9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
      "whsec_" + String(repeating: "A", count: 88),
    ])
  func secrets(text: String) {
    #expect(WebhookSecret(text) == nil)
  }
}
