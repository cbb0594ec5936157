import API
import HTTP
import HTTPTypes
import Jobs
import TestSupport
import Testing

@Suite("placeholder=true")
struct PlaceholderTests {
  let client = Client()
  static let phase = HTTPField.Name("Image-Phase")!

  private func failed() async throws -> JobID {
    let id = try await client.submitted()
    client.service.change(id) { job in
      job.start(at: job.createdAt)
      job.fail(.fetch(.timeout(seconds: 1)), at: job.createdAt, keptFor: .seconds(1))
    }
    return id
  }

  @Test("a placeholder replaces 202, 404 and 410, and Image-Phase says why")
  func phases() async throws {
    let queued = try await client.submitted()
    let failed = try await failed()
    let cancelled = try await client.submitted()
    _ = await client.send(.delete, "/jobs/\(cancelled)")
    let gone = try await client.succeeded([9])
    client.service.change(gone) { $0.markImageEvicted() }
    let expected = [
      (queued, "queued", Placeholder.loading), (failed, "failure", .failure),
      (cancelled, "cancelled", .failure), (gone, "gone", .failure),
    ]
    for (id, phase, placeholder) in expected {
      let answer = await client.get("/jobs/\(id)/image?placeholder=true")
      #expect(answer.status == 200, "\(phase)")
      #expect(answer.fields[Self.phase] == phase)
      #expect(answer.fields[.cacheControl] == "no-store")
      #expect(answer.fields[.contentType] == "image/png")
      #expect(answer.fields[.xContentTypeOptions] == "nosniff")
      #expect(answer.fields[.eTag] == nil)
      #expect(answer.bytes == PlaceholderImage.builtIn(for: placeholder).bytes)
    }
  }

  @Test("a successful image is sent as usual, with its phase")
  func success() async throws {
    let id = try await client.succeeded()
    let plain = await client.get("/jobs/\(id)/image")
    let answer = await client.get("/jobs/\(id)/image?placeholder=true")
    #expect(answer.bytes == plain.bytes && answer.fields[.eTag] == plain.fields[.eTag])
    #expect(answer.fields[Self.phase] == "success" && plain.fields[Self.phase] == nil)
    let gone = "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    #expect(await client.get("/jobs/\(gone)/image?placeholder=true").status == 404)
    #expect(await client.get("/jobs/\(id)/image?placeholder=maybe").status == 422)
  }

  @Test(
    "a placeholder is rendered in the requested size and format",
    arguments: [
      ("width=100&height=50&fit=cover", 100, 50, OutputFormat.png),
      ("width=100&height=60&dpr=2&fit=contain&format=webp", 160, 120, .webp),
      ("width=100&format=jpeg", 100, 75, .jpeg), ("height=90", 120, 90, .png),
      ("format=auto", 480, 360, .webp), ("background=ff8800", 480, 360, .png),
    ])
  func sizes(query: String, width: Int, height: Int, format: OutputFormat) async throws {
    let id = try await client.submitted()
    let answer = await client.get(
      "/jobs/\(id)/image?placeholder=true&\(query)", [.accept: "image/webp,*/*"])
    #expect(answer.status == 200)
    #expect(answer.fields[.contentType] == format.contentType)
    #expect((answer.fields[.vary] == "Accept") == query.contains("auto"))
    let rendition = try #require(client.service.with { $0.opened.last?.rendition })
    #expect([rendition.width, rendition.height] == [width, height])
    #expect(rendition.source == .placeholder(.builtIn(for: .loading)))
  }

  @Test("a placeholder with wrong variant parameters is 422")
  func wrong() async throws {
    let id = try await client.submitted()
    for query in ["width=30001", "height=0", "quality=0"] {
      let answer = await client.get("/jobs/\(id)/image?placeholder=true&\(query)")
      #expect(answer.status == 422, "\(query)")
    }
    #expect(client.service.with { $0.opened.isEmpty })
  }

  @Test(
    "a placeholder is the operator's image if there is one, or a variant of it")
  func configured() async throws {
    let bytes: [UInt8] = [1, 2, 3, 4]
    let description = ImageDescription(format: .gif, width: 40, height: 30)
    client.service.with {
      $0.pictures[.failure] = PlaceholderImage(bytes: bytes, description: description)
    }
    let id = try await failed()
    let plain = await client.get("/jobs/\(id)/image?placeholder=true")
    #expect(plain.bytes == bytes && plain.fields[.contentType] == "image/gif")
    let small = await client.get("/jobs/\(id)/image?placeholder=true&width=20&format=webp")
    #expect(small.fields[.contentType] == "image/webp")
    var variant = Variant(format: .webp)
    (variant.width, variant.height, variant.fit) = (20, 15, .fill)
    #expect(small.bytes == FakeRenderer.picture(variant, of: bytes))
  }
}
