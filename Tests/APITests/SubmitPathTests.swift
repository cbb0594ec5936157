import HTTPTypes
import Jobs
import Testing

@testable import API

/// Each form of a submission has a path of its own, for clients that are generated from openapi.yaml.
@Suite("The paths that take one form of submission")
struct SubmitPathTests {
  let client = Client { $0.maxBatch = 2 }
  let json: HTTPFields = [.contentType: "application/json"]

  @Test("/jobs/batch accepts only an array")
  func batch() async {
    let answer = await client.post(#"[{"url":"http://a/"},{"url":"http://b/"}]"#, to: "/jobs/batch")
    #expect(answer.status == 202)
    #expect(answer.json?["jobs"]?.array?.count == 2)
    let object = await client.post(#"{"url":"http://a/"}"#, to: "/jobs/batch")
    #expect(object.status == 422)
    #expect(object.detail == "Must be an array of jobs, not an object.")
    let mistaken = await client.post(#"[{"url":"http://a/"},{}]"#, to: "/jobs/batch")
    #expect(mistaken.mistakes == ["/1/url missing_url"])
    #expect(await client.post("[{},{},{}]", to: "/jobs/batch").status == 413)
    #expect(client.service.with { $0.jobs.count } == 2)
  }

  @Test("/jobs/upload accepts an image with options in the query")
  func upload() async {
    let answer = await client.send(
      .post, "/jobs/upload?tags=a&priority=low", [.contentType: "image/png"], body: [1, 2, 3])
    #expect(answer.status == 202)
    #expect(answer.json?["source"]?["captured"]?["bytes"] == .number(3))
    #expect(answer.json?["tags"] == .array([.string("a")]))
    #expect(answer.fields[.location]?.hasPrefix("/jobs/") == true)
  }

  @Test(
    "the paths refuse other forms and name their own",
    arguments: [
      ("/jobs/batch", "image/png", "application/json"),
      ("/jobs/batch", "multipart/form-data; boundary=x", "application/json"),
      ("/jobs/upload", "application/json", "image/* or application/octet-stream"),
      ("/jobs/upload", "text/plain", "image/* or application/octet-stream"),
      ("/jobs/form", "application/json", "multipart/form-data"),
      ("/jobs/form", "image/png", "multipart/form-data"),
    ])
  func refuses(path: String, type: String, own: String) async {
    let answer = await client.send(.post, path, [.contentType: type], body: Array("{}".utf8))
    #expect(answer.status == 415)
    #expect(answer.detail == "Content-Type must be \(own), without a Content-Encoding.")
    #expect(client.service.with { $0.jobs.isEmpty })
  }

  @Test("the paths are not jobs")
  func noJobs() async {
    for path in ["/jobs/batch", "/jobs/upload", "/jobs/form"] {
      let answer = await client.get(path)
      #expect(answer.status == 405)
      #expect(answer.fields[.allow] == "POST, OPTIONS")
      #expect(await client.get(path + "/image").status == 404)
    }
  }

  @Test(
    "a malformed id is 404 like an unknown one",
    arguments: ["/jobs/1", "/jobs/none/image", "/jobs/x/events", "/jobs/0193a0b2/preview"])
  func unknownIDs(path: String) async {
    let answer = await client.get(path)
    #expect(answer.status == 404)
    #expect(answer.detail?.hasPrefix("No job with this id") == true)
    #expect(await client.get("/jobs/").detail == "This path does not exist.")
    #expect(await client.get("/jobs/x/y").detail == "This path does not exist.")
  }

  @Test("a job's image has its digest and its display size")
  func image() async throws {
    let id = try await client.succeeded(Array("abc".utf8))
    let image = try #require(await client.get("/jobs/\(id)").json?["image"])
    // The example in FIPS 180-2, appendix B.1.
    #expect(
      image["sha256"]
        == .string("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"))
    let (width, height) = (image["width"]?.number, image["height"]?.number)
    #expect(image["display"]?["width"]?.number == width)
    client.service.change(id) { job in job.image?.description.orientation = 6 }
    let turned = try #require(await client.get("/jobs/\(id)").json?["image"])
    #expect(turned["display"]?["width"]?.number == height)
    #expect(turned["display"]?["height"]?.number == width)
    #expect(turned["width"]?.number == width)
  }
}
