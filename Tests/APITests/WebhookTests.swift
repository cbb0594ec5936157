import API
import Foundation
import HTTPTypes
import Jobs
import TestSupport
import Testing

@Suite("Webhook messages")
struct WebhookTests {
  private let client = Client()

  private func ended(_ job: Job) throws -> WebhookMessage {
    var job = job
    _ = job.cancel(at: job.createdAt, keptFor: .seconds(60))
    return try #require(WebhookMessage(endOf: job, after: .queued))
  }

  private func told() async throws -> JobID {
    let id = try await client.submitted(
      #"{"url":"https://example.org/a","notify":{"url":"https://a.example/"}}"#)
    let job = try #require(client.service.with { $0.jobs[id] })
    let message = try ended(job)
    client.service.with { $0.messages[id] = [message] }
    return id
  }

  @Test("a webhook message is listed with its attempts and can be sent again")
  func shown() async throws {
    let id = try await told()
    client.service.with { kept in
      kept.messages[id]?[0].recordAnswer(
        WebhookAnswer(at: Timestamp(milliseconds: 0), time: .milliseconds(12), status: 500),
        under: WebhookSchedule(waits: []), dice: 0)
    }
    let answer = await client.get("/jobs/\(id)/webhooks")
    #expect(answer.status == 200 && answer.json?["state"]?.string == "failed", "\(answer.text)")
    #expect(answer.json?["type"]?.string == "job.cancelled" && answer.json?["next_at"] == .null)
    #expect(answer.json?["tries"]?[0]?["status"]?.number == 500)
    #expect(answer.json?["tries"]?[0]?["error"]?.string == "The receiver responded with 500.")
    #expect(answer.json?["tries"]?[0]?["ms"]?.number == 12)
    #expect(answer.json?["earlier"]?.array?.isEmpty == true)
    let again = await client.send(.post, "/jobs/\(id)/webhooks/send")
    #expect(again.status == 200 && again.json?["state"]?.string == "pending")
    #expect(again.json?["id"] == answer.json?["id"])
    #expect(await client.send(.post, "/jobs/\(id)/webhooks").status == 405)
    #expect(await client.get("/jobs/\(id)/webhooks?x=1").status == 422)
  }

  /// Returns the described error of the last attempt, which got no response.
  private func told(_ failure: FetchError) async throws -> String? {
    let id = try await told()
    var message = try #require(client.service.with { $0.messages[id]?.first })
    message.recordAnswer(
      WebhookAnswer(at: message.moment, time: .zero, status: nil, error: failure),
      under: .standard, dice: 0)
    client.service.with { [message] in $0.messages[id] = [message] }
    return await client.get("/jobs/\(id)/webhooks").json?["tries"]?[0]?["error"]?.string
  }

  @Test("a failed attempt has its reason, without internal addresses")
  func unanswered() async throws {
    let inside = FetchError.blocked(
      target: "db.corp.internal", .address("10.4.7.19", name: "Private-Use"))
    #expect(
      try await told(inside)
        == "db.corp.internal has an address that this service may not send to.")
    #expect(
      try await told(.blocked(target: "a.example", .port(25)))
        == "a.example uses port 25, which this service may not send to.")
    #expect(try await told(.timeout(seconds: 15)) == "The receiver did not answer in time.")
    #expect(
      try await told(.dnsFailure(host: "a.example", detail: "no address"))
        == "a.example: no address.")
  }

  @Test("a webhook message is unknown to other owners, and 404 if there is none")
  func unknown() async throws {
    let id = try await client.submitted()
    for path in ["/jobs/\(id)/webhooks", "/jobs/\(JobID(at: client.service.now()))/webhooks"] {
      #expect(await client.get(path).status == 404)
      #expect(await client.send(.post, path + "/send").status == 404)
    }
  }

  @Test("a webhook message has the job's JSON, and at most 20 KiB")
  func body() async throws {
    let id = try await told()
    let message = try #require(client.service.with { $0.messages[id]?.first })
    let body = String(decoding: WebhookBody.encode(message), as: UTF8.self)
    #expect(body.hasPrefix(#"{"type":"job.cancelled","timestamp":""#) && body.hasSuffix("}}"))
    #expect(body == String(decoding: WebhookBody.encode(message), as: UTF8.self))

    let long = String(repeating: "a", count: 8_000)
    var submission = Submission(
      source: .url(
        try #require(SourceURL("https://a.example/\(long)")),
        lowData: SourceURL("https://b.example/\(long)")))
    submission.webhook = Webhook(
      url: try #require(SourceURL("https://a.example/")), events: WebhookEvent.jobEnds)
    // In JSON a quotation mark takes two bytes, and the neighbors of U+10FFFF take four.
    for tag in [String(repeating: "t", count: 64), String(repeating: "\u{10FFFD}", count: 64)] {
      var job = Job(
        id: id, owner: .anonymous, submission: submission, priority: .normal,
        tags: (0..<16).map { _ in tag }, createdAt: client.service.now())
      job.start(at: job.createdAt)
      let image = try await StoredImage.of(
        [1], url: #require(SourceURL("https://c.example/\(long)")))
      job.succeed(with: image, cache: nil, at: job.createdAt, keptFor: .seconds(1))
      let bytes = WebhookBody.encode(try #require(WebhookMessage(endOf: job, after: .loading)))
      #expect(bytes.count <= 20_480)
      let text = String(decoding: bytes, as: UTF8.self)
      #expect(text.contains("https://a.example/aaa") && !text.contains("https://b.example"))
    }
  }

  @Test("a webhook message above 20 KiB leaves out variants and the keys of deliveries")
  func longest() async throws {
    let url = try #require(SourceURL("https://a.example/" + String(repeating: "a", count: 8_170)))
    var submission = Submission(source: .url(url, lowData: nil))
    submission.webhook = Webhook(
      url: try #require(SourceURL("https://a.example/")), events: WebhookEvent.jobEnds)
    let now = client.service.now()
    var job = Job(
      id: JobID(at: now), owner: .anonymous, submission: submission, priority: .normal, tags: [],
      createdAt: now)
    job.start(at: now)
    var image = try await StoredImage.of([1], url: url)
    let rendition = Rendition(of: image, as: Variant(format: .jpeg), by: FakeRenderer())
    image.variants = (0..<8).map { number in
      MadeVariant("variant-\(number)", rendition, RenderedBytes([1]))
    }
    let request = DeliveryRequest(
      .profile("shop", key: DeliveryKey(forVariant: false)), variant: nil)
    let delivered = Delivered(
      request, key: String(repeating: "\"", count: 1_024), bytes: 1,
      entityTag: String(repeating: "\"", count: 256))
    job.succeed(
      with: image, cache: nil, deliveries: [Delivered](repeating: delivered, count: 4), at: now,
      keptFor: .seconds(1))
    let bytes = WebhookBody.encode(try #require(WebhookMessage(endOf: job, after: .loading)))
    #expect(bytes.count <= 20_480)
    let text = String(decoding: bytes, as: UTF8.self)
    #expect(text.contains(#""variants":[]"#) && text.contains(#"{"to":"shop","key":null"#))
    #expect(text.contains(url.string))
  }
}
