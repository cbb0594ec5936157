import HTTPTypes
import Testing

@testable import API

@Suite("A problem's page")
struct ProblemPageTests {
  @Test("is where its type leads, for every code", arguments: ProblemCode.allCases)
  func resolves(code: ProblemCode) async throws {
    let answer = await Client().get(code.type)
    #expect(answer.status == 200)
    #expect(answer.fields[.contentType] == "text/html; charset=utf-8")
    #expect(answer.text.contains("<h1>\(code.row.title)</h1>"))
    #expect(answer.text.contains("<code>\(code.name)</code>"))
    let advice = try #require(answer.text.firstMatch(of: #/What to do</h2>\n<p>(.+)</p>/#)?.1)
    #expect(advice.hasSuffix("."))
    #expect(advice.count > 40)
    #expect(!advice.contains("&") && !advice.contains("<"))
  }

  @Test("is not there for what is no code")
  func unknown() async {
    let answer = await Client().get("/problems/nothing")
    #expect(answer.status == 404)
    #expect(answer.detail == "No problem has this code.")
    #expect(await Client().get("/problems/").status == 404)
    #expect(await Client().get("/problems").status == 404)
    #expect(await Client().post("{}", to: "/problems/timeout").status == 405)
  }
}
