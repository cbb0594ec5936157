import API
import HTTPTypes
import Jobs
import TestSupport
import Testing

@Suite("GET /jobs/{id}/image with a variant's query")
struct VariantTests {
  let client = Client()
  let bytes: [UInt8] = Array(7..<200)

  /// A job whose image has that description.
  private func succeeded(
    _ format: ImageFormat = .jpeg, width: Int = 400, height: Int = 300, alpha: Bool = false,
    in client: Client? = nil
  ) async throws -> JobID {
    let client = client ?? self.client
    let id = try await client.succeeded(bytes)
    client.service.change(id) { job in
      guard var image = job.image else { return }
      image.description = ImageDescription(format: format, width: width, height: height)
      image.description.hasAlpha = alpha
      job.replaceImage(with: image, cache: job.cache)
    }
    return id
  }

  private func opened() -> [Variant] { client.service.with { $0.opened.map(\.rendition.variant) } }

  @Test("the variant is sent with the header fields that make it safe to show")
  func serves() async throws {
    let id = try await succeeded()
    let image = await client.get("/jobs/\(id)/image")
    let answer = await client.get("/jobs/\(id)/image?width=100&format=png")
    #expect(answer.status == 200)
    var variant = Variant(format: .png)
    (variant.width, variant.height, variant.fit) = (100, 75, .fill)
    #expect(opened() == [variant])
    #expect(answer.bytes == FakeRenderer.picture(variant, of: bytes))
    #expect(answer.fields[.contentType] == "image/png")
    #expect(answer.fields[.contentDisposition] == #"inline; filename="cat.png""#)
    #expect(answer.fields[.eTag]?.hasPrefix("\"sha256-") == true)
    #expect(answer.fields[.vary] == nil)
    for name: HTTPField.Name in [
      .acceptRanges, .lastModified, .cacheControl, .cacheStatus, .xContentTypeOptions,
      .contentSecurityPolicy,
    ] {
      #expect(answer.fields[name] != nil)
      #expect(answer.fields[name] == image.fields[name])
    }
  }

  @Test(
    "a variant has one ETag for all equal requests",
    arguments: [
      (["width=100", "height=75", "width=100&height=75", "height=75&width=100"], "width=101"),
      (["width=100", "width=50&dpr=2", "dpr=4&width=25", "width=80&dpr=1.25"], "width=200"),
      (
        ["width=100", "width=100&fit=contain", "fit=scale-down&width=100"],
        "width=100&fit=cover&height=9"
      ),
      (["fit=cover", "width=400", "width=9999", "dpr=3", "format=jpeg"], "quality=80"),
      (["format=png", "format=png&quality=1", "quality=99&format=png"], "format=webp"),
      (["background=ff0000", "background=00FF00", "format=jpeg"], "format=png"),
    ])
  func equalQueries(equal: [String], other: String) async throws {
    let id = try await succeeded()
    var tags: Set<String?> = []
    for query in equal { tags.insert(await client.get("/jobs/\(id)/image?\(query)").fields[.eTag]) }
    #expect(tags.count == 1)
    tags.insert(await client.get("/jobs/\(id)/image?\(other)").fields[.eTag])
    tags.insert(await client.get("/jobs/\(id)/image").fields[.eTag])
    #expect(tags.count == 3)
  }

  @Test("a client's current copy of a variant is 304")
  func notModified() async throws {
    let id = try await succeeded()
    let target = "/jobs/\(id)/image?width=100&format=auto"
    let whole = await client.get(target)
    let (tag, date) = (try #require(whole.fields[.eTag]), try #require(whole.fields[.lastModified]))
    for fields: HTTPFields in [
      [.ifNoneMatch: tag], [.ifNoneMatch: "\"x\", W/\(tag)"], [.ifModifiedSince: date],
    ] {
      for method in [HTTPRequest.Method.get, .head] {
        let answer = await client.send(method, target, fields)
        #expect(answer.status == 304)
        #expect(answer.fields[.eTag] == tag)
        #expect(answer.fields[.vary] == "Accept")
        #expect(answer.bytes.isEmpty && answer.omitted == whole.bytes.count)
      }
    }
    let image = try #require(await client.get("/jobs/\(id)/image").fields[.eTag])
    #expect(await client.get(target, [.ifNoneMatch: image]).status == 200)
  }

  @Test("HEAD of a variant has the fields of GET")
  func head() async throws {
    let id = try await succeeded()
    let get = await client.get("/jobs/\(id)/image?width=100")
    let head = await client.send(.head, "/jobs/\(id)/image?width=100", [.range: "bytes=0-1"])
    #expect(head.status == 200)
    #expect(head.bytes.count == get.bytes.count)
    for field in get.fields where field.name.canonicalName != "x-request-id" {
      #expect(head.fields[field.name] == field.value)
    }
  }

  @Test("a range is of the variant's bytes, if the ETag matches")
  func ranges() async throws {
    let id = try await succeeded()
    let target = "/jobs/\(id)/image?width=100"
    let whole = await client.get(target)
    let tag = try #require(whole.fields[.eTag])
    let part = await client.get(target, [.range: "bytes=3-9", .ifRange: tag])
    #expect(part.status == 206)
    #expect(part.bytes == Array(whole.bytes[3...9]))
    #expect(part.fields[.contentRange] == "bytes 3-9/\(whole.bytes.count)")
    let image = try #require(await client.get("/jobs/\(id)/image").fields[.eTag])
    let date = try #require(whole.fields[.lastModified])
    for other in [image, date] {
      #expect(await client.get(target, [.range: "bytes=3-9", .ifRange: other]).status == 200)
    }
    let none = await client.get(target, [.range: "bytes=\(whole.bytes.count)-"])
    #expect(none.status == 416)
  }

  @Test(
    "format=auto selects the format with the highest weight in Accept that can be written",
    arguments: [
      // Accept, the image's format, whether it can be transparent, the format that is sent.
      (nil, .jpeg, false, "jpeg"), (nil, .png, false, "png"), (nil, .png, true, "png"),
      ("*/*", .jpeg, false, "jpeg"), ("image/*", .png, true, "png"),
      (
        "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5", .jpeg, false,
        "webp"
      ),
      ("image/avif,*/*;q=0.8", .jpeg, false, "avif"),
      ("image/webp;q=0.9,*/*;q=0.8", .png, true, "webp"),
      ("image/webp;q=0.5,image/jpeg", .png, false, "jpeg"),
      ("image/webp;q=0,*/*", .jpeg, false, "jpeg"),
      ("image/jpeg,image/png;q=0.9", .png, false, "jpeg"),
      ("image/jpeg,image/png;q=0.1", .png, true, "png"), ("image/jpeg", .png, true, "jpeg"),
      ("image/png;q=0.3, image/jpeg;q=0.4", .png, false, "jpeg"),
      ("IMAGE/WebP", .jpeg, false, "webp"), ("image/webp;q=1.000", .jpeg, false, "webp"),
      ("image/webp;q=0.1;x=\"a\"", .jpeg, false, "webp"),
      ("image/webp ; q=0.2", .jpeg, false, "webp"),
      ("image/webp;q=2,image/png;q=0.2", .jpeg, false, "png"),
      ("image/webp;q=0.0001,image/png", .jpeg, false, "png"),
      ("image/*;q=0.2,image/jpeg;q=0.1", .jpeg, false, "png"),
      ("*/jpeg, nonsense,,;q=1,image/png", .jpeg, false, "png"),
      ("text/html", .jpeg, false, "jpeg"), ("image/*;q=0", .png, true, "png"),
      ("image/gif", .png, false, "png"), ("", .jpeg, false, "jpeg"),
      // Old versions of Safari, and browsers that name only PNG.
      ("image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5", .jpeg, false, "jpeg"),
      ("image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5", .heic, false, "jpeg"),
      ("image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5", .webp, false, "jpeg"),
      ("image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5", .webp, true, "png"),
      ("image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5", .png, false, "png"),
      ("image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5", .gif, false, "png"),
      ("image/png,image/jpeg;q=0.9", .jpeg, false, "png"),
      ("image/png,*/*;q=0", .jpeg, false, "png"),
    ] as [(String?, ImageFormat, Bool, String)])
  func negotiates(accept: String?, own: ImageFormat, alpha: Bool, sent: String) async throws {
    let client = Client(renderer: FakeRenderer(formats: Set(OutputFormat.allCases)))
    let id = try await succeeded(own, alpha: alpha, in: client)
    var fields = HTTPFields()
    fields[.accept] = accept
    let answer = await client.get("/jobs/\(id)/image?format=auto", fields)
    #expect(answer.fields[.contentType] == "image/\(sent)")
    #expect(answer.fields[.vary] == "Accept")
  }

  @Test("a format that can't be written is neither sent nor accepted")
  func unwritten() async throws {
    let client = Client(renderer: FakeRenderer(formats: [.jpeg]))
    let id = try await succeeded(.png, alpha: true, in: client)
    for (query, accept) in [
      ("format=auto", "image/avif,image/webp,image/png"), ("format=auto", "image/webp"),
      ("width=5", "*/*"),
    ] {
      let answer = await client.get("/jobs/\(id)/image?\(query)", [.accept: accept])
      #expect(answer.fields[.contentType] == "image/jpeg")
    }
    let answer = await client.get("/jobs/\(id)/image?format=webp")
    #expect(answer.status == 422)
    #expect(answer.mistakes == ["format invalid_option"])
    #expect(answer.json?["detail"]?.string == "Must be one of jpeg, auto.")
  }

  @Test(
    "a variant without a format has the image's own, or one that can store it",
    arguments: [
      ([.jpeg, .png], .jpeg, false, "jpeg"), ([.jpeg, .png], .png, false, "png"),
      ([.jpeg, .webp], .png, false, "jpeg"), ([.png, .webp], .jpeg, false, "png"),
      ([.webp], .jpeg, false, "webp"),
    ] as [(Set<OutputFormat>, ImageFormat, Bool, String)])
  func ownFormat(
    formats: Set<OutputFormat>, own: ImageFormat, alpha: Bool, sent: String
  ) async throws {
    let client = Client(renderer: FakeRenderer(formats: formats))
    let id = try await succeeded(own, alpha: alpha, in: client)
    let answer = await client.get("/jobs/\(id)/image?width=5", [.accept: "image/webp"])
    #expect(answer.fields[.contentType] == "image/\(sent)")
    #expect(answer.fields[.vary] == nil)
  }

  @Test(
    "position is a word or two percentages",
    arguments: [
      ("top", 50, 0), ("bottom-right", 100, 100), ("left", 0, 50), ("10,100", 10, 100),
      ("center", 50, 50),
    ])
  func position(text: String, x: Int, y: Int) async throws {
    // A square image is cropped in one direction only.
    let id = try await succeeded()
    for (size, position) in [
      ("width=10&height=90", Variant.Position(x: x, y: 50)),
      ("width=90&height=10", Variant.Position(x: 50, y: y)),
    ] {
      let query = "\(size)&fit=cover&position=\(text)"
      #expect(await client.get("/jobs/\(id)/image?\(query)").status == 200)
      #expect(opened().last?.position == position, "\(size)")
    }
  }

  @Test("with a background a transparent image can be written as JPEG")
  func background() async throws {
    let id = try await succeeded(.png, alpha: true)
    let accept: HTTPFields = [.accept: "image/jpeg,image/png;q=0.5"]
    let plain = await client.get("/jobs/\(id)/image?format=auto", accept)
    #expect(plain.fields[.contentType] == "image/png")
    let signed = await client.get("/jobs/\(id)/image?format=auto&background=%23ff8000", accept)
    let painted = await client.get("/jobs/\(id)/image?format=auto&background=ff8000", accept)
    #expect(signed.fields[.eTag] == painted.fields[.eTag])
    #expect(painted.fields[.contentType] == "image/jpeg")
    #expect(opened().last?.background == .init(red: 255, green: 128, blue: 0))
  }

  @Test(
    "a wrong value is reported with its parameter",
    arguments: [
      ("width=0", "width"), ("width=-1", "width"), ("width=1.5", "width"), ("width=x", "width"),
      ("width=", "width"), ("width=30001", "width"), ("height=99999999999999999999", "height"),
      ("width=20000&dpr=2", "width"), ("height=15001&dpr=2", "height"),
      ("fit=stretch", "fit"), ("fit=Cover", "fit"), ("format=gif", "format"),
      ("format=jpg", "format"),
      ("format=avif", "format"), ("quality=0", "quality"), ("quality=101", "quality"),
      ("background=fff", "background"), ("background=%23%23ff0000", "background"),
      ("background=%23ff00", "background"),
      ("position=middle", "position"), ("position=101,0", "position"), ("position=1", "position"),
      ("position=-1,5", "position"), ("position=left-top", "position"), ("enlarge=yes", "enlarge"),
      ("background=gg0000", "background"), ("background=+f0000f", "background"),
      ("background=%EF%BC%91%EF%BC%91", "background"), ("dpr=0.5", "dpr"), ("dpr=4.1", "dpr"),
      ("dpr=NaN", "dpr"), ("animated=maybe", "animated"), ("animated=true&format=png", "animated"),
      ("dpr=1e999", "dpr"), ("width=1&width=2", "width"), ("widht=5", "widht"),
      ("width=10000&height=10000&fit=fill", "width"), ("height=20000&fit=cover", "height"),
      ("height=25000&width=30000&fit=cover", "width"),
    ])
  func wrong(query: String, member: String) async throws {
    let id = try await succeeded()
    let answer = await client.get("/jobs/\(id)/image?\(query)")
    #expect(answer.status == 422)
    #expect(answer.mistakes == ["\(member) invalid_option"])
    #expect(opened().isEmpty)
  }

  @Test("a size above the image's is not too large, because contain never enlarges")
  func larger() async throws {
    let id = try await succeeded()
    let answer = await client.get("/jobs/\(id)/image?width=30000&height=30000")
    #expect(answer.status == 200)
    #expect(opened() == [Variant(format: .jpeg)])
  }

  @Test(
    "an error of rendering has its problem",
    arguments: [
      (.renderingsFull, 503, "queue_full"), (.draining, 503, "draining"),
      (.imageGone, 410, "image_gone"),
      (.unrenderable(.unsupportedFormat(name: "GIF")), 422, "unsupported_format"),
      (.unrenderable(.tooMuchMemory(bytes: 2, limit: 1)), 422, "too_many_pixels"),
      (.unrenderable(.broken(format: .jpeg, detail: "bad")), 502, "decode_failed"),
      (.store(.unavailable(detail: "secret")), 503, "store_unavailable"),
      (.store(.leaseLost), 503, "store_unavailable"),
      (.store(.unreadable(detail: "secret")), 500, "internal"),
    ] as [(JobsError, Int, String)])
  func refusals(error: JobsError, status: Int, code: String) async throws {
    let id = try await succeeded()
    client.service.with { $0.refusal = error }
    let answer = await client.get("/jobs/\(id)/image?width=5")
    #expect(answer.status == status)
    #expect(answer.code == code)
    #expect((answer.fields[.retryAfter] != nil) == (status == 503))
    #expect(!answer.text.contains("secret"))
  }

  @Test("a variant of an unfinished, failed, deleted or foreign job is answered like its image")
  func unavailable() async throws {
    let client = Client { $0.tokens = [.of("web", [.jobs]), .of("other", [.jobs])] }
    let (web, other): (HTTPFields, HTTPFields) = (
      [.authorization: "Bearer web"], [.authorization: "Bearer other"]
    )
    let id = try await client.submitted(#"{"url":"http://a/"}"#, web)
    func status(_ fields: HTTPFields, _ query: String = "width=5") async -> Int {
      await client.get("/jobs/\(id)/image?\(query)", fields).status
    }
    #expect(await status(web) == 202)
    #expect(await status(other) == 404)
    // A mistake would reveal that the job exists.
    #expect(await status(other, "width=0") == 404)
    #expect(await status(web, "width=0") == 422)
    client.service.change(id) { $0.fail(.codec(.cutShort), at: $0.createdAt, keptFor: .seconds(1)) }
    #expect(await status(web) == 404)
    let done = try await succeeded()
    self.client.service.change(done) { $0.markImageEvicted() }
    let gone = await self.client.get("/jobs/\(done)/image?width=5")
    #expect(gone.status == 410)
    #expect(gone.code == "image_gone")
  }

  @Test("a variant waits for the job and is rendered at its priority")
  func waits() async throws {
    let id = try await client.submitted(#"{"url":"http://a/","priority":"high"}"#)
    async let waiting = client.get("/jobs/\(id)/image?width=5&wait=60")
    let image = try await StoredImage.of(bytes, url: #require(SourceURL("http://a/")))
    client.service.with { $0.images[image.digest] = bytes }
    client.service.change(id) { job in
      job.start(at: job.createdAt)
      job.succeed(with: image, cache: nil, at: job.createdAt, keptFor: .seconds(3600))
    }
    #expect(await waiting.status == 200)
    #expect(client.service.with { $0.opened.map(\.priority) } == [.high])
  }
}
