import API
import HTTPTypes
import Jobs
import Testing

@Suite("A job's failure")
struct FailureTests {
  static let digest = ImageDigest(bytes: Array(repeating: 1, count: 32))!
  static let failures: [(JobFailure, String, Int?)] = [
    (
      .fetch(.blocked(target: "a", .address("10.0.0.1", name: "Private-Use"))), "blocked_address",
      nil
    ),
    (.fetch(.blocked(target: "a", .host)), "blocked_address", nil),
    (.fetch(.blocked(target: "a", .port(22))), "blocked_address", nil),
    (.fetch(.blocked(target: "a", .scheme("ftp"))), "blocked_address", nil),
    (.fetch(.dnsFailure(host: "a", detail: "x")), "dns_failure", nil),
    (.fetch(.connectFailure(host: "a", detail: "x")), "connect_failure", nil),
    (.fetch(.noResponse(host: "a", detail: "x")), "connect_failure", nil),
    (.fetch(.unreachable(origin: "http://a", failures: 5, seconds: 7.2)), "connect_failure", nil),
    (.fetch(.tlsFailure(host: "a", detail: "x")), "tls_failure", nil),
    (.fetch(.timeout(seconds: 1)), "timeout", nil), (.fetch(.stalled(seconds: 1)), "stalled", nil),
    (.fetch(.tooManyRedirects(limit: 5)), "too_many_redirects", nil),
    (.fetch(.badRedirect(status: 302, location: nil)), "origin_status", 302),
    (.fetch(.originStatus(404, retryAfter: nil)), "origin_status", 404),
    (.fetch(.noData), "no_data", nil), (.fetch(.tooLarge(limit: 1)), "too_large", nil),
    (.fetch(.truncated(received: 1, expected: 2)), "truncated", nil),
    (.codec(.unsupportedFormat(name: "GIF")), "unsupported_format", nil),
    (.codec(.unsupportedFormat(name: nil)), "unsupported_format", nil),
    (.codec(.tooManyPixels(width: 1, height: 1, limit: 1)), "too_many_pixels", nil),
    (.codec(.dimensionTooLarge(width: 1, height: 1, limit: 1)), "too_many_pixels", nil),
    (.codec(.tooManyScans(limit: 1)), "too_many_pixels", nil),
    (.codec(.tooManyFrames(limit: 1)), "too_many_pixels", nil),
    (.codec(.tooMuchMemory(bytes: 1, limit: 1)), "too_many_pixels", nil),
    (.codec(.cutShort), "decode_failed", nil),
    (.codec(.broken(format: .png, detail: "x\u{0}\"")), "decode_failed", nil),
    (.integrityMismatch(expected: digest, actual: digest), "integrity_mismatch", nil),
    (.notCached, "not_cached", nil), (.localNotFound(name: "x"), "local_not_found", nil),
    (.storageFull, "storage_full", nil), (.internal, "internal", nil),
  ]

  @Test("a connect_failure has the number of failed requests and the time of the next attempt")
  func unreachable() async throws {
    let client = Client()
    let id = try await client.submitted()
    client.service.change(id) { job in
      let error = FetchError.unreachable(
        origin: "https://a.example", failures: 5, seconds: 11.2)
      job.fail(.fetch(error), at: job.createdAt, keptFor: .seconds(1))
    }
    let error = await client.get("/jobs/\(id)").json?["error"]
    #expect(error?["retryable"] == .bool(true))
    #expect(
      error?["detail"]
        == .string(
          "https://a.example failed 5 requests in a row and is paused. The next attempt is in 12 s."
        ))
  }

  @Test(
    "unsupported_format names the detected format",
    arguments: [
      ("HEIC", "The file is a HEIC image, which is not supported."),
      ("SVG", "The file is an SVG image, which is not supported."),
      ("JPEG XL", "The file is a JPEG XL image, which is not supported."),
      ("HTML", "The file is HTML, which is not supported."),
    ])
  func unsupported(name: String, detail: String) async throws {
    let client = Client()
    let id = try await client.submitted()
    client.service.change(id) { job in
      job.fail(.codec(.unsupportedFormat(name: name)), at: job.createdAt, keptFor: .seconds(1))
    }
    #expect(await client.get("/jobs/\(id)").json?["error"]?["detail"] == .string(detail))
  }

  @Test(
    "a failure has the code of openapi.yaml, and reveals nothing of the internal network",
    arguments: failures)
  func codes(failure: JobFailure, code: String, originStatus: Int?) async throws {
    let client = Client()
    let id = try await client.submitted()
    client.service.change(id) { job in
      job.fail(failure, at: job.createdAt, keptFor: .seconds(1))
    }
    let answer = await client.get("/jobs/\(id)")
    let error = try #require(answer.json?["error"])
    #expect(error["code"] == .string(code))
    #expect(error["type"] == .string("/problems/\(code)"))
    #expect(error["retryable"] == .bool(failure.isRetryable))
    #expect(error["origin_status"] == (originStatus.map { .number(Double($0)) } ?? .null))
    #expect(error["title"]?.string?.isEmpty == false)
    #expect(error["detail"]?.string?.isEmpty == false)
    #expect(!answer.text.contains("10.0.0.1"))
  }

  static let reasons: [(JobFailure, String?)] = [
    (.fetch(.blocked(target: "a", .address("10.0.0.1", name: "Private-Use"))), "address"),
    (.fetch(.blocked(target: "a", .host)), "host"),
    (.fetch(.blocked(target: "a", .port(22))), "port"),
    (.fetch(.blocked(target: "a", .scheme("ftp"))), "scheme"),
    (.codec(.tooManyPixels(width: 1, height: 1, limit: 1)), "pixels"),
    (.codec(.dimensionTooLarge(width: 1, height: 1, limit: 1)), "dimensions"),
    (.codec(.tooManyScans(limit: 1)), "scans"), (.codec(.tooManyFrames(limit: 1)), "frames"),
    (.codec(.tooMuchMemory(bytes: 1, limit: 1)), "memory"), (.codec(.cutShort), nil),
    (.fetch(.timeout(seconds: 1)), nil),
  ]

  @Test("a failure has a reason if its code has several", arguments: reasons)
  func reason(failure: JobFailure, word: String?) async throws {
    let client = Client()
    let id = try await client.submitted()
    client.service.change(id) { job in
      job.fail(failure, at: job.createdAt, keptFor: .seconds(1))
    }
    let error = try #require(await client.get("/jobs/\(id)").json?["error"])
    #expect(error["reason"]?.string == word)
  }

  @Test("a variant that needs too much memory has the same reason")
  func variantReason() async throws {
    let client = Client()
    let id = try await client.succeeded()
    client.service.with { $0.refusal = .unrenderable(.tooMuchMemory(bytes: 2, limit: 1)) }
    let answer = await client.get("/jobs/\(id)/image?width=5")
    #expect(answer.code == "too_many_pixels")
    #expect(answer.json?["reason"] == .string("memory"))
  }
}
