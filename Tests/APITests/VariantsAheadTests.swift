import HTTPTypes
import Jobs
import TestSupport
import Testing

@Suite("Variants asked for with a job")
struct VariantsAheadTests {
  private let client = Client()

  private func post(_ variants: String) async -> Answer {
    await client.post(#"{"url":"https://example.org/a","variants":\#(variants)}"#)
  }

  @Test("a job's variants are listed, with their index as the default name")
  func wanted() async throws {
    let text = #"""
      [{"width":10}, {"name":"big_1-a","width":20,"height":30,"fit":"cover","position":"top","format":"png",
        "background":"#ff8800","dpr":2}, {"height":5,"enlarge":true,"quality":7}]
      """#
    let answer = await post(text)
    #expect(answer.status == 202, "\(answer.text)")
    let job = try #require(client.service.with { $0.jobs.values.first })
    let variants = job.submission.variants
    #expect(variants.map(\.name) == ["v0", "big_1-a", "v2"])
    #expect(variants.map(\.width) == [10, 40, nil] && variants.map(\.height) == [nil, 60, 5])
    #expect(variants[1].fit == .cover && variants[1].position == .init(x: 50, y: 0))
    #expect(variants[1].format == .png && variants[1].background?.green == 0x88)
    #expect(variants[2].enlarge && variants[2].quality == 7 && variants[2].format == nil)
  }

  @Test("wrong variants are reported by member, in a query within the detail")
  func places() async {
    let text = #"[{"width":0,"fit":"x"},{"widht":1},{"height":20000,"dpr":2},{"name":"v1"},7]"#
    let wrong = [
      "/variants/0/width", "/variants/0/fit", "/variants/1/widht", "/variants/2/height",
      "/variants/3/name", "/variants/4",
    ]
    #expect(await post(text).mistakes == wrong.map { "\($0) invalid_option" })
    let query = "variants=%5B%7B%22width%22:0%7D%5D"
    let upload = await client.send(.post, "/jobs/upload?\(query)", [.contentType: "image/png"])
    #expect(upload.mistakes == ["variants invalid_option"])
    #expect(upload.detail?.hasPrefix("/0/width: Must be an integer") == true)
  }

  @Test("an empty array of variants makes none")
  func none() async {
    #expect(await post("[]").status == 202)
  }

  @Test("a job that drops its original keeps only its variants")
  func dropped() async throws {
    func post(_ members: String) async -> Answer {
      await client.post(#"{"url":"https://example.org/a",\#(members)}"#)
    }
    #expect(await post(#""original":"keep""#).status == 202)
    #expect(client.service.with { $0.jobs.values.allSatisfy { !$0.submission.dropsOriginal } })
    #expect(await post(#""original":"drop","variants":[{"width":9}]"#).status == 202)
    #expect(client.service.with { $0.jobs.values.contains { $0.submission.dropsOriginal } })
    for members in [
      #""original":"drop""#, #""original":"drop","variants":[]"#,
      #""original":"lose","variants":[{"width":9}]"#, #""original":true,"variants":[{"width":9}]"#,
    ] {
      let answer = await post(members)
      #expect(answer.status == 422 && answer.text.contains("/original"), "\(members)")
    }
  }

  @Test(
    "a job with a wrong variant is refused",
    arguments: [
      "{}", "[1]", #"[{"width":0}]"#, #"[{"width":30001}]"#, #"[{"width":20000,"dpr":2}]"#,
      #"[{"name":"A"}]"#, #"[{"name":""}]"#, #"[{"name":"x"},{"name":"x"}]"#,
      #"[{"name":"v1"},{}]"#, #"[{"format":"auto"}]"#, #"[{"format":"gif"}]"#, #"[{"fit":"x"}]"#,
      #"[{"position":"x"}]"#, #"[{"quality":0}]"#, #"[{"background":"red"}]"#, #"[{"dpr":5}]"#,
      #"[{"enlarge":1}]"#, #"[{"widht":5}]"#, #"[{},{},{},{},{},{},{},{},{}]"#,
      #"[{"width":20000,"height":20000,"fit":"fill"}]"#,
    ])
  func wrong(variants: String) async {
    let answer = await post(variants)
    #expect(answer.status == 422, "\(variants): \(answer.text)")
  }
}
