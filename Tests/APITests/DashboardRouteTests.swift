import HTTPTypes
import Testing

@Suite("GET /")
struct DashboardRouteTests {
  let client = Client()

  @Test("the dashboard has a content security policy and is revalidated")
  func page() async {
    let answer = await client.get("/")
    #expect(answer.status == 200)
    #expect(answer.text == "<!DOCTYPE html>")
    #expect(answer.fields[.contentType] == "text/html; charset=utf-8")
    #expect(answer.fields[.contentSecurityPolicy] == "default-src 'none'")
    #expect(answer.fields[.xContentTypeOptions] == "nosniff")
    #expect(answer.fields[.init("Referrer-Policy")!] == "no-referrer")
    #expect(answer.fields[.cacheControl] == "no-cache")
  }

  @Test("the dashboard is 304 for a client that has it")
  func condition() async throws {
    let page = await client.get("/")
    let tag = try #require(page.fields[.eTag])
    for field in [tag, "W/\(tag)", "\"x\", \(tag)", "*"] {
      let answer = await client.get("/", [.ifNoneMatch: field])
      #expect(answer.status == 304 && answer.bytes.isEmpty)
      #expect(answer.omitted == page.bytes.count)
      #expect(answer.fields[.eTag] == tag)
    }
    #expect(await client.get("/", [.ifNoneMatch: "\"x\""]).status == 200)
  }

  @Test("the dashboard accepts GET and HEAD without a query")
  func methods() async {
    let answer = await client.send(.post, "/")
    #expect(answer.status == 405 && answer.fields[.allow] == "GET, HEAD, OPTIONS")
    #expect(await client.get("/?token=secret").status == 422)
  }
}
