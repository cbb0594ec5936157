import API
import HTTPTypes
import Testing

@Suite("A name that is not there")
struct SuggestionTests {
  @Test(
    "an unknown member gets a suggestion if a similar name exists",
    arguments: [
      (#"{"ulr":"https://a.example/x"}"#, "Did you mean url?"),
      (#"{"url":"https://a.example/x","max_byte":5}"#, "Did you mean max_bytes?"),
      (#"{"url":"https://a.example/x","prioritiy":"low"}"#, "Did you mean priority?"),
      (#"{"url":"https://a.example/x","variants":[{"widht":5}]}"#, "Did you mean width?"),
      (#"{"url":"https://a.example/x","colour":5}"#, nil),
      // A member of another kind of source is not a spelling mistake.
      (#"{"local":"x.png","headers":{}}"#, nil),
    ] as [(String, String?)])
  func members(json: String, hint: String?) async throws {
    let answer = await Client().post(json)
    #expect(answer.status == 422)
    let errors = try #require(answer.json?["errors"]?.array)
    let details = errors.compactMap { $0["detail"]?.string }
    let told = details.first { $0.contains("no such member") }
    try #require(told != nil, "\(details)")
    #expect(told?.contains("Did you mean") == (hint != nil), "\(details)")
    if let hint { #expect(told?.hasSuffix(" " + hint) == true, "\(details)") }
  }

  @Test(
    "an unknown query parameter gets a suggestion too",
    arguments: [
      ("/jobs?limt=5", "Did you mean limit?"), ("/jobs?phaze=failure", "Did you mean phase?"),
      ("/jobs?colour=red", nil), ("/jobs?limit=5&\(String(repeating: "x", count: 4000))=1", nil),
    ] as [(String, String?)])
  func queries(target: String, hint: String?) async throws {
    let answer = await Client().get(target)
    #expect(answer.status == 422)
    let detail = answer.json?["detail"]?.string ?? ""
    #expect(detail == "This query parameter is unknown here." + (hint.map { " " + $0 } ?? ""))
  }
}
