import API
import HTTPTypes
import Jobs
import TestSupport
import Testing

@Suite("Webhooks of a job")
struct NotifyTests {
  private func submitted(_ members: String, plain: Bool = false) async -> (Answer, Webhook?) {
    let client = Client { $0.allowsPlainWebhooks = plain }
    let answer = await client.post(#"{"url":"https://example.org/a","notify":\#(members)}"#)
    return (answer, client.service.with { $0.jobs.values.first?.submission.webhook })
  }

  @Test("a webhook gets all events, or the ones that it lists")
  func events() async throws {
    let (answer, webhook) = await submitted(#"{"url":"https://a.example/hook?x=1"}"#)
    #expect(answer.status == 202, "\(answer.text)")
    #expect(webhook?.url.string == "https://a.example/hook?x=1")
    #expect(webhook?.events == [.jobSuccess, .jobFailure, .jobCancelled])

    let some =
      #"{"url":"https://a.example/","events":["job.cancelled","job.failure","job.failure"]}"#
    #expect(await submitted(some).1?.events == [.jobFailure, .jobCancelled])
  }

  @Test("a malformed webhook is refused, and each mistake has its place")
  func mistakes() async {
    for (members, place) in [
      ("1", "/notify"), ("{}", "/notify/url"), (#"{"url":1}"#, "/notify/url"),
      (#"{"url":"ftp://a.example/"}"#, "/notify/url"),
      (#"{"url":"https://u:p@a.example/"}"#, "/notify/url"),
      (#"{"url":"https://a.example/","events":[]}"#, "/notify/events"),
      (#"{"url":"https://a.example/","events":["job.done"]}"#, "/notify/events"),
      (#"{"url":"https://a.example/","events":["batch.finished"]}"#, "/notify/events"),
      (#"{"url":"https://a.example/","secret":"x"}"#, "/notify/secret"),
    ] {
      let (answer, webhook) = await submitted(members)
      #expect(answer.status == 422 && webhook == nil, "\(members)")
      #expect(answer.mistakes.contains { $0.hasPrefix(place + " ") }, "\(members)")
    }
  }

  @Test("a webhook without TLS is refused unless that is allowed")
  func plain() async {
    let members = #"{"url":"http://a.example/"}"#
    #expect(await submitted(members).0.status == 422)
    #expect(await submitted(members, plain: true).1?.url.scheme == "http")
  }

  private static func batch(
    _ client: Client, _ target: String, _ text: String, _ type: String = "application/json"
  ) async throws -> (answer: Answer, batch: Batch?) {
    let answer = await client.send(
      .post, target, [.contentType: type], body: Array(text.utf8))
    let id = answer.json?["id"]?.string.flatMap { JobID(utf8: Substring($0).utf8) }
    guard let id else { return (answer, nil) }
    return (answer, try await client.service.batchStore.batch(id))
  }

  @Test(
    "a batch has a webhook in the query or in the JSON form, also for its jobs")
  func batches() async throws {
    let client = Client()
    let url = "%22url%22:%22https://a.example/%22"
    var made = try await Self.batch(
      client, "/batches?notify=%7B\(url)%7D", "http://a/1", "text/uri-list")
    #expect(made.batch?.webhook?.events == [.batchFinished], "\(made.answer.text)")
    #expect(client.service.with { $0.jobs.values.allSatisfy { $0.submission.webhook == nil } })

    let text = #"""
      {"notify":{"url":"https://b.example/","events":["batch.finished","job.failure"]},
       "jobs":["http://a/2",{"url":"http://a/3","notify":{"url":"https://c.example/"}}]}
      """#
    made = try await Self.batch(client, "/batches", text)
    #expect(made.batch?.webhook?.url.host == "b.example", "\(made.answer.text)")
    let told = client.service.with { kept in
      kept.jobs.values.filter { $0.batch?.id == made.batch?.id }.sorted { $0.id < $1.id }
        .map(\.submission.webhook)
    }
    #expect(told.map { $0?.url.host } == ["b.example", "c.example"])
    #expect(told.map { $0?.events.count } == [1, 3])

    made = try await Self.batch(
      client, "/batches?open=true", #"{"notify":{"url":"https://b.example/"},"jobs":[]}"#)
    #expect(made.batch?.webhook?.events == [.batchFinished])
    for (target, body) in [
      ("/batches?notify=1", "{\"jobs\":[]}"), ("/batches?notify=%7B%7D", "{\"jobs\":[]}"),
      ("/batches", #"{"notify":{"url":"https://b.example/","events":["x"]},"jobs":["http://a/"]}"#),
      // The jobs were created without it.
      (
        "/batches",
        #"{"jobs":["http://a/"],"notify":{"url":"https://b.example/","events":["job.failure"]}}"#
      ),
    ] {
      #expect(try await Self.batch(client, target, body).answer.status == 422, "\(target)")
    }
  }

  @Test("a batch's webhook may come after its jobs")
  func behind() async throws {
    for pieces in [1, Int.max] {
      let client = Client()
      let text = #"{"jobs":["http://a/1"],"notify":{"url":"https://b.example/"}}"#
      let answer = await client.send(
        .post, "/batches", [.contentType: "application/json"], body: Array(text.utf8),
        pieces: pieces)
      #expect(answer.status == 202 && answer.json?["received"] == .number(1), "\(answer.text)")
      let id = answer.json?["id"]?.string.flatMap { JobID(utf8: Substring($0).utf8) }
      let batch = try await client.service.batchStore.batch(try #require(id))
      #expect(batch?.webhook?.url.host == "b.example")
      #expect(batch?.webhook?.events == [.batchFinished] && batch?.state == .running)
      #expect(client.service.with { $0.jobs.values.allSatisfy { $0.submission.webhook == nil } })
    }
  }

  @Test("a batch's webhook message is listed and can be sent again")
  func batchMessages() async throws {
    let client = Client()
    let (_, made) = try await Self.batch(
      client, "/batches", #"{"notify":{"url":"https://b.example/"},"jobs":["http://a/2"]}"#)
    let batch = try #require(made)
    let path = "/batches/\(batch.id)/webhooks"
    #expect(await client.get(path).status == 404)
    _ = try await client.service.batchStore.cancel(batch.id)
    _ = try await client.service.batchStore.endStopped(9, keptFor: .seconds(1))
    _ = try await client.service.batchStore.finishBatches()
    let shown = await client.get(path)
    #expect(shown.status == 200 && shown.json?["type"] == .string("batch.finished"))
    #expect(shown.json?["state"] == .string("pending"), "\(shown.text)")
    let again = await client.send(.post, path + "/send")
    #expect(again.status == 200 && again.json?["id"] == shown.json?["id"])
    let unknown = "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    #expect(await client.get("/batches/\(unknown)/webhooks").status == 404)
    let message = try #require(try await client.service.batchStore.messages(of: batch.id).first)
    let body = String(decoding: WebhookBody.encode(message), as: UTF8.self)
    #expect(body.hasPrefix(#"{"type":"batch.finished","timestamp":""#))
    #expect(body.contains(#""data":{"id":"\#(batch.id)""#) && body.contains(#""cancelled":1"#))
  }

  @Test("an upload may have a webhook, as JSON in the query or in the options")
  func uploads() async {
    let client = Client()
    let query = "notify=%7B%22url%22%3A%22https%3A%2F%2Fa.example%2F%22%7D"
    let answer = await client.send(
      .post, "/jobs?\(query)", [.contentType: "image/png"], body: [1, 2, 3])
    #expect(answer.status == 202, "\(answer.text)")
    #expect(client.service.with { $0.jobs.values.first?.submission.webhook } != nil)
    let wrong = await client.send(
      .post, "/jobs?notify=x", [.contentType: "image/png"], body: [1, 2, 3])
    #expect(wrong.status == 422 && wrong.mistakes == ["notify invalid_option"])
  }
}
