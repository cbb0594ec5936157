import API
import HTTPTypes
import Jobs
import Testing

@Suite("Whom a job tells of its end")
struct NotifyTests {
  private func submitted(_ members: String, plain: Bool = false) async -> (Answer, Webhook?) {
    let client = Client { $0.allowsPlainWebhooks = plain }
    let answer = await client.post(#"{"url":"https://example.org/a","notify":\#(members)}"#)
    return (answer, client.service.with { $0.jobs.values.first?.submission.webhook })
  }

  @Test("is told of every end, or of those that were named")
  func events() async throws {
    let (answer, webhook) = await submitted(#"{"url":"https://a.example/hook?x=1"}"#)
    #expect(answer.status == 202, "\(answer.text)")
    #expect(webhook?.url.string == "https://a.example/hook?x=1")
    #expect(webhook?.events == [.jobSuccess, .jobFailure, .jobCancelled])

    let some =
      #"{"url":"https://a.example/","events":["job.cancelled","job.failure","job.failure"]}"#
    #expect(await submitted(some).1?.events == [.jobFailure, .jobCancelled])
  }

  @Test("is refused where its form is wrong, each member by its place")
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

  @Test("is asked for without TLS only where that is allowed")
  func plain() async {
    let members = #"{"url":"http://a.example/"}"#
    #expect(await submitted(members).0.status == 422)
    #expect(await submitted(members, plain: true).1?.url.scheme == "http")
  }

  @Test("goes with an upload too, as JSON in the query or in the options")
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
