import API
import HTTPTypes
import Jobs
import Testing

@Suite("Deliveries of a job")
struct DeliverTests {
  private func submitted(_ deliver: String, _ more: String = "") async -> (
    Answer, [DeliveryRequest]
  ) {
    let client = Client { $0.destinations = ["shop": nil] }
    let answer = await client.post(
      #"{"url":"https://example.org/a"\#(more),"deliver":\#(deliver)}"#)
    return (answer, client.service.with { $0.jobs.values.first?.submission.deliveries ?? [] })
  }

  @Test("a delivery has a presigned URL or the name of a destination")
  func wanted() async throws {
    let (answer, deliveries) = await submitted(
      #"""
      [{"put":"https://b.example/k?X-Amz-Signature=1","headers":{"x-amz-acl":"private"}},
       {"to":"shop"}, {"to":"shop","key":"{tag}/{name}.{ext}","what":"thumb"}, {"to":"shop","what":"thumb"}]
      """#, #","variants":[{"name":"thumb","width":9}]"#)
    #expect(answer.status == 202, "\(answer.text)")
    let url = try #require(SourceURL("https://b.example/k?X-Amz-Signature=1"))
    let fields = [HeaderField(name: "x-amz-acl", value: "private")]
    #expect(deliveries.map(\.variant) == [nil, nil, "thumb", "thumb"])
    #expect(deliveries[0].target == .put(url, headers: fields))
    #expect(deliveries[1].target == .profile("shop", key: DeliveryKey(forVariant: false)))
    #expect(
      deliveries[2].target == .profile("shop", key: try #require(DeliveryKey("{tag}/{name}.{ext}")))
    )
    #expect(deliveries[3].target == .profile("shop", key: DeliveryKey(forVariant: true)))
    #expect(!answer.text.contains("X-Amz-Signature"), "the response contains no signature")
  }

  @Test(
    "a malformed delivery is refused",
    arguments: [
      "{}", "[1]", "[{}]", #"[{"to":"shop","put":"https://a.example/"}]"#, #"[{"to":"other"}]"#,
      #"[{"to":1}]"#, #"[{"to":"shop","key":"../x"}]"#, #"[{"to":"shop","key":"{x}"}]"#,
      #"[{"to":"shop","key":1}]"#, #"[{"to":"shop","what":"thumb"}]"#, #"[{"to":"shop","what":1}]"#,
      #"[{"to":"shop","headers":{}}]"#, #"[{"put":"ftp://a.example/"}]"#, #"[{"put":"x"}]"#,
      #"[{"put":"https://a.example/","key":"x"}]"#, #"[{"put":"https://a.example/","acl":"x"}]"#,
      #"[{"put":"https://a.example/","headers":{"Content-Length":"1"}}]"#,
      #"[{"put":"https://a.example/","headers":{"a":"b\nc"}}]"#,
      #"[{"to":"shop"},{"to":"shop"},{"to":"shop"},{"to":"shop"},{"to":"shop"}]"#,
    ])
  func refused(deliver: String) async {
    let (answer, deliveries) = await submitted(deliver)
    #expect(answer.status == 422 && deliveries.isEmpty, "\(answer.text)")
    #expect(answer.mistakes.allSatisfy { $0.hasPrefix("/deliver") }, "\(answer.mistakes)")
  }

  @Test("a destination is unknown to tokens that are not among its owners")
  func owners() async {
    let client = Client {
      $0.tokens = [.of("web", [.jobs]), .of("app", [.jobs]), .of("root", [.jobs, .admin])]
      $0.destinations = ["shop": [Owner("web")], "all": nil]
    }
    func status(_ name: String, _ token: String, batch: Bool = false) async -> Int {
      let json = #"{"url":"https://example.org/a","deliver":[{"to":"\#(name)"}]}"#
      let fields: HTTPFields = [
        .authorization: "Bearer \(token)",
        .contentType: batch ? "application/x-ndjson" : "application/json",
      ]
      let answer = await client.send(
        .post, batch ? "/batches" : "/jobs", fields, body: Array(json.utf8))
      if batch { return answer.json?["counts"]?["rejected"] == .number(1) ? 422 : answer.status }
      if answer.status == 422 {
        #expect(answer.mistakes == ["/deliver/0/to invalid_option"])
        #expect(answer.detail == "There is no destination of this name.")
      }
      return answer.status
    }
    for batch in [false, true] {
      #expect(await status("shop", "web", batch: batch) == 202)
      #expect(await status("shop", "app", batch: batch) == 422)
      #expect(await status("shop", "root", batch: batch) == 422)
      #expect(await status("none", "app", batch: batch) == 422)
      #expect(await status("all", "app", batch: batch) == 202)
    }
  }

  @Test("a mistake in a delivery names the member")
  func places() async {
    let (answer, _) = await submitted(
      #"""
      [{"to":"other"}, {"to":"shop","key":"../x"}, {"put":"x"},
       {"put":"https://a.example/","headers":{"Content-Length":"1"}}]
      """#)
    let wrong = ["0/to", "1/key", "2/put", "3/headers/Content-Length"]
    let code = ["invalid_option", "invalid_option", "invalid_url", "invalid_option"]
    #expect(answer.mistakes == zip(wrong, code).map { "/deliver/\($0) \($1)" })
    let (unmade, _) = await submitted(#"[{"to":"shop","what":"thumb"}]"#)
    #expect(unmade.mistakes == ["/deliver/0/what invalid_option"])
  }
}
