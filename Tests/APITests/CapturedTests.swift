import API
import HTTPTypes
import Jobs
import Testing

@Suite("A captured image")
struct CapturedTests {
  let client = Client()
  let bytes: [UInt8] = (0..<5000).map { UInt8(truncatingIfNeeded: $0 * 7) }

  @Test("an uploaded image is stored, with its options from the query")
  func accepts() async throws {
    let answer = await client.send(
      .post, "/jobs?priority=low&tags=a+b&tags=%C3%BC&max_pixels=5&retention=2.5",
      [.contentType: "image/PNG; x=y"], body: bytes, pieces: 700)
    #expect(answer.status == 202)
    #expect(
      answer.json?["source"]
        == .object([
          "captured": .object(["bytes": .number(5000), "content_type": .string("image/png")])
        ]))
    #expect(answer.json?["tags"] == .array([.string("a b"), .string("ü")]))
    #expect(answer.json?["priority"] == .string("low"))
    #expect(client.service.with { $0.images.values.contains(bytes) })
    let job = try #require(client.service.with { $0.jobs.values.first })
    #expect(job.submission.maxPixels == 5)
    #expect(job.submission.retention == .milliseconds(2500))
  }

  @Test("an empty upload is accepted, and its job will fail")
  func acceptsEmpty() async {
    let answer = await client.send(.post, "/jobs", [.contentType: "application/octet-stream"])
    #expect(answer.status == 202)
    #expect(answer.json?["source"]?["captured"]?["bytes"] == .number(0))
  }

  @Test(
    "a wrong option of an upload is 422 before anything is stored",
    arguments: [
      ("priority=urgent", "priority"), ("url=http://a/", "url"), ("max_bytes=x", "max_bytes"),
      ("headers=x", "headers"), ("timeout=1&timeout=2", "timeout"), ("tags=%00", "tags=%00"),
      ("x=%zz", "x=%zz"), ("cache_key=k", "cache_key"),
      ("cache=no-store", "cache"), ("cache=default", "cache"), ("cache_ttl=5", "cache_ttl"),
      ("timeout=Infinity", "timeout"),
      ("max_attempts=%201", "max_attempts"), ("tags=", "tags"),
    ])
  func refusesOption(query: String, parameter: String) async {
    let answer = await client.send(
      .post, "/jobs?\(query)", [.contentType: "image/png"], body: bytes)
    #expect(answer.status == 422)
    #expect(answer.json?["errors"]?[0]?["parameter"] == .string(parameter))
    #expect(client.service.with { $0.captures } == 0)
  }

  @Test("the parts of a form may have either order", arguments: [true, false], [1, 7, 100_000])
  func acceptsForm(optionsFirst: Bool, pieces: Int) async {
    let image = part("image", "image/jpeg", bytes)
    let options = part(
      "options", "application/json", Array(#"{"tags":["t"],"priority":"high"}"#.utf8))
    let body = form(optionsFirst ? [options, image] : [image, options])
    let answer = await client.send(.post, "/jobs", Self.type, body: body, pieces: pieces)
    #expect(answer.status == 202)
    #expect(answer.json?["tags"] == .array([.string("t")]))
    #expect(answer.json?["priority"] == .string("high"))
    #expect(answer.json?["source"]?["captured"]?["content_type"] == .string("image/jpeg"))
    #expect(client.service.with { $0.images.values.contains(bytes) })
  }

  @Test("a form may hold bytes that look like its boundary, and an empty image")
  func keepsLookalikes() async {
    let tricky = Array("\r\n--b0und\r\n\r\n--b0undar\r\r\n-".utf8)
    let answer = await client.send(
      .post, "/jobs", Self.type, body: form([part("image", "image/png", tricky)]), pieces: 3)
    #expect(answer.status == 202)
    #expect(client.service.with { $0.images.values.contains(tricky) })
    let empty = await client.send(
      .post, "/jobs", Self.type, body: form([part("image", "image/png", [])]))
    #expect(empty.json?["source"]?["captured"]?["bytes"] == .number(0))
  }

  @Test(
    "a form may have a preamble, an epilogue, and white space after its boundaries",
    arguments: ["", "\r\n", "This is a message in MIME format.\r\n--b0undar\r\n"], [1, 7, 100_000])
  func acceptsPreamble(preamble: String, pieces: Int) async {
    let body =
      Array("\(preamble)--b0undary \t\r\n".utf8) + part("image", "image/jpeg", bytes)
      + Array("\r\n--b0undary--  \r\nbye".utf8)
    let answer = await client.send(.post, "/jobs", Self.type, body: body, pieces: pieces)
    #expect(answer.status == 202, "\(answer.text)")
    #expect(client.service.with { $0.images.values.contains(bytes) })
  }

  @Test("the preamble of a form is limited", arguments: [1, 100_000])
  func boundsPreamble(pieces: Int) async {
    let whole = form([part("image", "image/png", bytes)])
    for (count, status) in [(4096, 202), (4097, 400)] {
      let body = Array(repeating: UInt8(ascii: "x"), count: count) + [13, 10] + whole
      let answer = await client.send(.post, "/jobs", Self.type, body: body, pieces: pieces)
      #expect(answer.status == status, "\(answer.text)")
    }
  }

  @Test("a form's mistakes are 422 with their places")
  func refusesForm() async {
    let image = part("image", "image/jpeg", bytes)
    let none = await client.send(.post, "/jobs", Self.type, body: form([]))
    #expect(none.mistakes == ["image missing_url"])
    let unknown = await client.send(
      .post, "/jobs", Self.type, body: form([image, part("extra", "text/plain", [65])]))
    #expect(unknown.mistakes == ["extra invalid_option"])
    let options = part("options", "application/json", Array(#"{"url":"http://a/"}"#.utf8))
    let source = await client.send(.post, "/jobs", Self.type, body: form([image, options]))
    #expect(source.mistakes == ["/url invalid_option"])
    #expect(client.service.with { $0.jobs.isEmpty })
  }

  @Test("a form's first unknown part ends its reading, however many follow")
  func refusesUnknownPartAtOnce() async {
    let unknown = Array(repeating: part("x", "text/plain", []), count: 20_000)
    let answer = await client.send(.post, "/jobs", Self.type, body: form(unknown))
    #expect(answer.status == 422)
    #expect(answer.mistakes == ["x invalid_option"])
    #expect(client.service.with { $0.captures } == 0)
  }

  @Test("a form that breaks the rules is refused")
  func refusesMalformedForm() async {
    let image = part("image", "image/jpeg", bytes)
    let broken: [([UInt8], Int)] = [
      ([], 400), (Array("x".utf8) + form([image]), 400), (Array(form([image]).dropLast(4)), 400),
      (form([image, image]), 400),
      (form([Array("\r\nx".utf8)]), 400),
      (Array("--b0undary x\r\n".utf8) + image + Array("\r\n--b0undary--".utf8), 400),
      (Array("--b0undary\r\n".utf8) + image + Array("\r\n--b0undary --".utf8), 400),
      (form([part("image", "text/html", bytes)]), 415),
      (form([Array("Content-Type: image/png\r\n\r\nx".utf8)]), 400),
      (form([part("image", "image/png", []) + [1], Array(repeating: 65, count: 5000)]), 431),
      (form([image, part("options", "application/json", Array("{".utf8))]), 400),
      (
        form([image, part("options", "application/json", Array(repeating: 32, count: 70_000))]), 413
      ),
    ]
    for (body, status) in broken {
      let answer = await client.send(.post, "/jobs", Self.type, body: body)
      #expect(answer.status == status, "\(String(decoding: body.prefix(200), as: UTF8.self))")
      #expect(answer.fields[.contentType] == "application/problem+json")
    }
    #expect(client.service.with { $0.jobs.isEmpty })
  }

  private static let type: HTTPFields = [.contentType: "multipart/form-data; boundary=b0undary"]

  private func part(_ name: String, _ type: String, _ content: [UInt8]) -> [UInt8] {
    let head = """
      Content-Disposition: form-data; name="\(name)"; filename="a \\"b\\".png"\r
      Content-Type: \(type)\r
      \r

      """
    return Array(head.utf8) + content
  }

  private func form(_ parts: [[UInt8]]) -> [UInt8] {
    parts.flatMap { Array("--b0undary\r\n".utf8) + $0 + [13, 10] } + Array("--b0undary--\r\n".utf8)
  }
}
