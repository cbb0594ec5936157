import HTTPTypes
import Jobs
import Testing

@testable import API

@Suite("A problem's page")
struct ProblemPageTests {
  @Test("the type of every problem leads to its page", arguments: ProblemCode.allCases)
  func resolves(code: ProblemCode) async throws {
    let answer = await Client().get(code.type)
    #expect(answer.status == 200)
    #expect(answer.fields[.contentType] == "text/html; charset=utf-8")
    #expect(answer.text.contains("<h1>\(code.row.title)</h1>"))
    #expect(answer.text.contains("<code>\(code.name)</code>"))
    for part in code.row.meaning?.split(separator: "`") ?? [] {
      #expect(answer.text.contains(part))
    }
    let advice = try #require(answer.text.firstMatch(of: #/What to do</h2>\n<p>(.+)</p>/#)?.1)
    #expect(advice.hasSuffix("."))
    #expect(advice.count > 40)
    #expect(!advice.contains("&") && !advice.contains("<"))
  }

  @Test("one page links all problem pages", arguments: ["/problems/", "/problems"])
  func index(path: String) async {
    let answer = await Client().get(path)
    #expect(answer.status == 200)
    #expect(answer.fields[.contentType] == "text/html; charset=utf-8")
    for code in ProblemCode.allCases {
      #expect(answer.text.contains("<a href=\"\(code.type)\"><code>\(code.name)</code></a>"))
    }
    #expect(answer.text.contains("<main>\n<h1>"))
    #expect(await Client().send(.head, path).status == 200)
  }

  @Test(
    "a program gets all problems with their advice as JSON", arguments: ["/problems/", "/problems"])
  func list(path: String) async throws {
    let answer = await Client().get(path, [.accept: "application/json"])
    #expect(answer.status == 200)
    #expect(answer.fields[.contentType] == "application/json")
    #expect(answer.fields[.vary] == "Accept")
    for (name, codes) in [
      ("requests", RequestCode.allCases.map { ProblemCode.request($0) }),
      ("jobs", FailureCode.allCases.map { ProblemCode.job($0) }),
    ] {
      let listed = try #require(answer.json?[name]?.array)
      #expect(listed.map { $0["code"]?.string } == codes.map(\.name))
      #expect(listed.map { $0["title"]?.string } == codes.map(\.row.title))
      #expect(listed.map { $0["advice"]?.string } == codes.map(\.row.advice))
      #expect(listed.map { $0["type"]?.string } == codes.map(\.type))
    }
  }

  @Test(
    "a browser gets a problem page for an unknown path",
    arguments: ["/nope", "/problems/x"])
  func browser(path: String) async {
    let fields: HTTPFields = [.accept: "text/html,application/xhtml+xml,*/*;q=0.8"]
    let page = await Client().get(path, fields)
    #expect(page.status == 404)
    #expect(page.fields[.contentType] == "text/html; charset=utf-8")
    #expect(page.fields[.cacheControl] == "no-store" && page.fields[.eTag] == nil)
    #expect(page.fields[.xRequestID] != nil)
    #expect(page.text.contains("<main>") && page.text.contains("<code>not_found</code>"))
    for accept in ["*/*", "application/json", "text/html;q=0"] {
      let problem = await Client().get(path, [.accept: accept])
      #expect(problem.code == "not_found", "\(accept)")
    }
    // The API's paths respond with JSON to browsers too.
    #expect(await Client().get("/jobs/x", fields).code == "not_found")
    let refused = await Client { $0.tokens = [.of("web", [.jobs])] }.get("/nope", fields)
    #expect(refused.status == 401 && refused.fields[.wwwAuthenticate] != nil)
    #expect(refused.text.contains("<code>unauthorized</code>"))
  }

  @Test("an unknown code has no page")
  func unknown() async {
    let answer = await Client().get("/problems/nothing")
    #expect(answer.status == 404)
    #expect(answer.detail == "This problem code does not exist.")
    #expect(await Client().post("{}", to: "/problems/timeout").status == 405)
  }
}
