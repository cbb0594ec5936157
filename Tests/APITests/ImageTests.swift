import API
import HTTP
import HTTPTypes
import Jobs
import Testing

@Suite("GET /jobs/{id}/image")
struct ImageTests {
  let client = Client()
  let bytes: [UInt8] = Array(0..<200)

  @Test("the image is sent with the header fields that make it safe to show")
  func serves() async throws {
    let id = try await client.succeeded(
      bytes, url: "https://example.org/a/my%20c%C3%A4t.php?x=/y.z")
    let answer = await client.get("/jobs/\(id)/image")
    #expect(answer.status == 200)
    #expect(answer.bytes == bytes)
    let digest = try #require(client.service.with { $0.jobs[id]?.image?.digest.hex })
    #expect(answer.fields[.contentType] == "image/jpeg")
    #expect(answer.fields[.eTag] == "\"sha256-\(digest)\"")
    #expect(answer.fields[.acceptRanges] == "bytes")
    #expect(answer.fields[.lastModified] == "Tue, 14 Nov 2023 22:13:20 GMT")
    #expect(answer.fields[.cacheStatus] == "imagefetch; fwd=uri-miss")
    #expect(answer.fields[.xContentTypeOptions] == "nosniff")
    #expect(answer.fields[.contentSecurityPolicy] == imagePolicy)
    #expect(answer.fields[.contentDisposition] == #"inline; filename="myct.jpg""#)
    #expect(await client.get("/jobs/\(id)").json?["image"]?["etag"]?.string == answer.fields[.eTag])
  }

  @Test("images that clients do not read are limited in memory, and more are sent from a file")
  func unread() async throws {
    let large = [UInt8](repeating: 7, count: 128 << 10)
    let id = try await client.succeeded(large)
    var unread: [Response] = []
    for _ in 0..<512 {
      let request = Request(method: .get, path: "/jobs/\(id)/image", query: nil)
      unread.append(await client.routes.respond(to: request))
    }
    #expect(unread.allSatisfy { $0.status == .ok })
    #expect(client.service.with { $0.filed.isEmpty })
    #expect(await client.get("/jobs/\(id)/image").bytes == large)
    #expect(client.service.with { $0.filed } == [large])
    // After they were sent, or their clients disconnected, memory is available again.
    unread = []
    #expect(await client.get("/jobs/\(id)/image").bytes == large)
    #expect(client.service.with { $0.filed.count } == 1)
  }

  @Test("an image that is requested by its digest is immutable or 404")
  func immutable() async throws {
    let id = try await client.succeeded(bytes)
    let digest = try #require(client.service.with { $0.jobs[id]?.image?.digest.hex })
    let plain = await client.get("/jobs/\(id)/image")
    #expect(plain.fields[.cacheControl] == "private, no-cache")
    let answer = await client.get("/jobs/\(id)/image?sha256=\(digest)")
    #expect(answer.bytes == bytes)
    #expect(answer.fields[.cacheControl] == "private, max-age=31536000, immutable")
    let other = String(repeating: "0", count: 64)
    for query in ["", "&width=5"] {
      let gone = await client.get("/jobs/\(id)/image?sha256=\(other)\(query)")
      #expect(gone.status == 404 && gone.code == "image_unavailable")
    }
    let standing = await client.get("/jobs/\(id)/image?sha256=\(other)&placeholder=true")
    #expect(standing.status == 200 && standing.fields[.cacheControl] == "no-store")
    #expect(await client.get("/jobs/\(id)/image?sha256=1234").status == 422)
  }

  @Test(
    "the file name is safe and has the extension of the format",
    arguments: [
      ("http://a/", "image.jpg"), ("http://a/..", "image.jpg"), ("http://a/x.png", "x.jpg"),
      ("http://a/%22%3B%0d.jpg", "image.jpg"), ("http://a/a;b=c.jpg", "abc.jpg"),
      ("http://a/" + String(repeating: "x", count: 99), String(repeating: "x", count: 64) + ".jpg"),
    ])
  func names(url: String, name: String) async throws {
    let id = try await client.succeeded(url: url)
    let answer = await client.get("/jobs/\(id)/image")
    #expect(answer.fields[.contentDisposition] == "inline; filename=\"\(name)\"")
  }

  @Test(
    "a range is 206 with its bytes",
    arguments: [
      ("bytes=0-0", 0..<1), ("bytes=10-19", 10..<20), ("bytes=190-", 190..<200),
      ("bytes=-5", 195..<200),
      ("bytes=-500", 0..<200), ("bytes=150-99999999999999999999", 150..<200),
    ])
  func ranges(range: String, expected: Range<Int>) async throws {
    let id = try await client.succeeded(bytes)
    let answer = await client.get("/jobs/\(id)/image", [.range: range])
    #expect(answer.status == 206)
    #expect(answer.bytes == Array(bytes[expected]))
    #expect(
      answer.fields[.contentRange] == "bytes \(expected.lowerBound)-\(expected.upperBound - 1)/200")
    #expect(answer.fields[.contentType] == "image/jpeg")
    #expect(answer.fields[.xContentTypeOptions] == "nosniff")
  }

  @Test(
    "a range outside the image is 416",
    arguments: ["bytes=200-", "bytes=-0", "bytes=999-1000"])
  func unsatisfiable(range: String) async throws {
    let id = try await client.succeeded(bytes)
    let answer = await client.get("/jobs/\(id)/image", [.range: range])
    #expect(answer.status == 416)
    #expect(answer.fields[.contentRange] == "bytes */200")
    #expect(answer.code == "range_not_satisfiable")
  }

  @Test(
    "a malformed range or several ranges return the whole image",
    arguments: [
      "bytes=5-2", "items=0-1", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-1,5-6", "bytes= 0-1",
    ])
  func ignoresRange(range: String) async throws {
    let id = try await client.succeeded(bytes)
    let answer = await client.get("/jobs/\(id)/image", [.range: range])
    #expect(answer.status == 200)
    #expect(answer.bytes == bytes)
  }

  @Test("with If-Range only the current image is sent in part")
  func ifRange() async throws {
    let id = try await client.succeeded(bytes)
    let whole = await client.get("/jobs/\(id)/image")
    let tag = try #require(whole.fields[.eTag])
    let date = try #require(whole.fields[.lastModified])
    for (field, status) in [
      (tag, 206), (date, 206), ("\"old\"", 200), ("W/\(tag)", 200), ("x", 200),
    ] {
      let fields: HTTPFields = [.range: "bytes=0-9", .ifRange: field]
      #expect(await client.get("/jobs/\(id)/image", fields).status == status)
    }
  }

  @Test("a date in If-Range is used from one second after it")
  func ifRangeSoon() async throws {
    let id = try await client.succeeded(bytes)
    let modified = try #require(client.service.peek(id, for: .everyone)?.job.image?.modifiedAt)
    let date = try #require(await client.get("/jobs/\(id)/image").fields[.lastModified])
    for (later, status) in [(Int64(999), 200), (1_000, 206)] {
      client.service.with { $0.milliseconds = modified.milliseconds + later }
      let fields: HTTPFields = [.range: "bytes=0-9", .ifRange: date]
      #expect(await client.get("/jobs/\(id)/image", fields).status == status)
    }
  }

  @Test("Last-Modified is never later than now, whatever the origin said")
  func fromTheFuture() async throws {
    let id = try await client.succeeded(bytes)
    client.service.with { $0.milliseconds = 1_600_000_000_000 }
    let answer = await client.get("/jobs/\(id)/image")
    #expect(answer.fields[.lastModified] == "Sun, 13 Sep 2020 12:26:40 GMT")
  }

  @Test("If-Match with another ETag is refused before the range is checked")
  func preconditions() async throws {
    let id = try await client.succeeded(bytes)
    let whole = await client.get("/jobs/\(id)/image")
    let tag = try #require(whole.fields[.eTag])
    let date = try #require(whole.fields[.lastModified])
    let old = "Sun, 06 Nov 1994 08:49:37 GMT"
    let cases: [(HTTPFields, Int)] = [
      ([.ifMatch: tag], 200), ([.ifMatch: "*"], 200), ([.ifMatch: "\"x\", \(tag)"], 200),
      ([.ifMatch: "\"x\""], 412), ([.ifMatch: "W/\(tag)"], 412),
      ([.ifUnmodifiedSince: date], 200), ([.ifUnmodifiedSince: old], 412),
      ([.ifUnmodifiedSince: "yesterday"], 200), ([.ifMatch: tag, .ifUnmodifiedSince: old], 200),
      ([.ifMatch: "\"x\"", .ifNoneMatch: tag], 412), ([.ifMatch: tag, .ifNoneMatch: tag], 304),
    ]
    for (fields, status) in cases {
      let answer = await client.get("/jobs/\(id)/image", fields)
      #expect(answer.status == status, "\(fields)")
      var part = fields
      part[.range] = "bytes=0-9"
      let expected = status == 200 ? 206 : status
      #expect(await client.get("/jobs/\(id)/image", part).status == expected, "\(fields)")
    }
  }

  @Test("a client's current copy of an image is 304")
  func notModified() async throws {
    let id = try await client.succeeded(bytes)
    let whole = await client.get("/jobs/\(id)/image")
    let tag = try #require(whole.fields[.eTag])
    let date = try #require(whole.fields[.lastModified])
    for fields: HTTPFields in [
      [.ifNoneMatch: tag], [.ifNoneMatch: "W/\(tag)"], [.ifModifiedSince: date],
      [.ifNoneMatch: tag, .range: "bytes=0-1"],
    ] {
      let answer = await client.get("/jobs/\(id)/image", fields)
      #expect(answer.status == 304)
      #expect(answer.fields[.eTag] == tag)
      #expect(answer.bytes.isEmpty && answer.omitted == whole.bytes.count)
    }
    for fields: HTTPFields in [
      [.ifNoneMatch: "\"x\"", .ifModifiedSince: date], [.ifModifiedSince: "yesterday"],
      [.ifModifiedSince: "Tue, 14 Nov 2023 22:13:19 GMT"],
    ] {
      #expect(await client.get("/jobs/\(id)/image", fields).status == 200)
    }
  }

  @Test("a replaced image has a newer date, even if its origin sends an earlier one")
  func replacement() async throws {
    let id = try await client.succeeded(bytes)
    let date = try #require(await client.get("/jobs/\(id)/image").fields[.lastModified])
    let other = Array(bytes.reversed())
    var regular = try await StoredImage.of(other, url: #require(SourceURL("https://example.org/b")))
    regular.modifiedAt = Timestamp(milliseconds: 1_000)
    client.service.with { $0.images[regular.digest] = other }
    client.service.change(id) { $0.replaceImage(with: regular, cache: nil) }
    let answer = await client.get("/jobs/\(id)/image", [.ifModifiedSince: date])
    #expect(answer.status == 200 && answer.bytes == other)
    let told = try #require(answer.fields[.lastModified])
    #expect(await client.get("/jobs/\(id)/image", [.ifModifiedSince: told]).status == 304)
  }

  @Test("HEAD has the fields of GET and ignores ranges")
  func head() async throws {
    let id = try await client.succeeded(bytes)
    let get = await client.get("/jobs/\(id)/image")
    let head = await client.send(.head, "/jobs/\(id)/image", [.range: "bytes=0-1"])
    #expect(head.status == 200)
    #expect(head.fields[.eTag] == get.fields[.eTag])
    #expect(head.bytes.count == bytes.count)
  }

  @Test("an image in a file is sent from the file, which stays open until then")
  func sendsFile() async throws {
    let id = try await client.succeeded(bytes)
    client.service.with { $0.descriptor = 7 }
    let request = Request(method: .get, path: "/jobs/\(id)/image", fields: [.range: "bytes=5-14"])
    let response = await client.routes.respond(to: request)
    guard case .file(7, offset: 5, count: 10, let owner) = response.content else {
      Issue.record("not that part of the file")
      return
    }
    #expect(owner is FakeFile)
  }

  @Test("an unfinished job is 202 with the job and Retry-After")
  func pending() async throws {
    let id = try await client.submitted()
    let answer = await client.get("/jobs/\(id)/image")
    #expect(answer.status == 202)
    #expect(answer.json?["id"] == .string(id.description))
    #expect(answer.fields[.retryAfter] == "1")
  }

  @Test("a failed job is 404 with its error, a cancelled job 404 without one")
  func unavailable() async throws {
    let id = try await client.submitted()
    client.service.change(id) { job in
      job.fail(.codec(.cutShort), at: job.createdAt, keptFor: .seconds(1))
    }
    let answer = await client.get("/jobs/\(id)/image")
    #expect(answer.status == 404)
    #expect(answer.code == "image_unavailable")
    #expect(answer.json?["error"]?["code"] == .string("decode_failed"))
    let cancelled = try await client.submitted()
    _ = await client.send(.delete, "/jobs/\(cancelled)")
    let other = await client.get("/jobs/\(cancelled)/image")
    #expect(other.code == "image_unavailable")
    #expect(other.json?["error"] == .null)
  }

  @Test(
    "an image that is no longer stored is 410, by the job or by the store",
    arguments: [true, false])
  func gone(byJob: Bool) async throws {
    let id = try await client.succeeded(bytes)
    if byJob {
      client.service.change(id) { $0.markImageEvicted() }
    } else {
      client.service.with { $0.images = [:] }
    }
    let answer = await client.get("/jobs/\(id)/image")
    #expect(answer.status == 410)
    #expect(answer.code == "image_gone")
  }

  @Test(
    "unknown query parameters of an image are refused, not ignored",
    arguments: [
      "width=5", "height=5", "fit=cover", "format=png", "quality=5", "background=fff", "dpr=2",
      "placeholder=maybe",
    ])
  func refusesVariants(query: String) async throws {
    let client = Client(renderer: nil)
    let id = try await client.succeeded(bytes)
    let answer = await client.get("/jobs/\(id)/image?\(query)")
    #expect(answer.status == 422)
    #expect(answer.mistakes == ["\(query.prefix { $0 != "=" }) invalid_option"])
  }
}
