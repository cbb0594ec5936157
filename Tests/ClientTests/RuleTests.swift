import Jobs
import Testing

@testable import Client

@Suite("The client's rules")
struct RuleTests {
  @Test(
    "a file's extension follows from its media type",
    arguments: [
      ("image/png", "png"), ("image/jpeg; q=1", "jpg"), ("IMAGE/WEBP", "webp"), (nil, "bin"),
      ("text/html", "bin"), ("application/x-sh", "bin"),
    ])
  func ending(type: String?, ending: String) {
    #expect(FileName.ending(of: type) == ending)
  }

  @Test("the media types of the command are those of the service", arguments: ImageFormat.allCases)
  func types(format: ImageFormat) {
    let type = FileName.types.first { $0.key == format.contentType }
    #expect(type?.value == format.fileExtension, "FileName.swift: \(format.contentType)")
    #expect(FileName.types.count == ImageFormat.allCases.count)
  }

  @Test(
    "a URL without a scheme that begins with a host is read as https",
    arguments: [
      ("example.org/a.jpg", true), ("127.0.0.1:9000/a.jpg", true), ("localhost:9000/a.jpg", true),
      ("LocalHost/a.jpg", true), ("nas:8080/a.jpg", true), ("[::1]:9000/a.jpg", true),
      ("[2001:db8::1]/a.jpg", true), ("nas/a.jpg", false), ("http://a/", false), ("a:b", false),
      ("mailto:me@example.org", false), ("localhost:99999/", false), (":80/", false), ("", false),
      ("data:image/png;base64,x", false), ("[::1/a", false),
    ])
  func hosts(text: String, isHost: Bool) {
    #expect(ImageOptions.url(text) == (isHost ? "https://" : "") + text)
  }

  @Test("a name that exists gets a number before its extension")
  func numbered() {
    #expect(FileName.numbered("cat.jpg", 1) == "cat.jpg")
    #expect(FileName.numbered("cat.jpg", 2) == "cat-2.jpg")
    #expect(FileName.numbered("cat", 12) == "cat-12")
  }

  @Test(
    "a free number among a million is found with about forty checks",
    arguments: [0, 1, 2, 7, 8, 1_000_000])
  func freeNumber(taken: Int) {
    var looks = 0
    let found = FreeNumber.find { number in
      looks += 1
      return number > taken
    }
    #expect(found == taken + 1)
    #expect(looks <= 42)
  }

  @Test("the search ends if all numbers are used")
  func noNumber() { #expect(FreeNumber.find { _ in false } == nil) }

  @Test("foreign text cannot move the cursor, begin a line or look like a field")
  func plainText() {
    let hostile = "a\u{1B}[2Jb\nc\td\u{202E}e\u{9B}f\u{7F}"
    let line = PlainText.line(hostile)
    #expect(line == "a\u{FFFD}[2Jb\u{FFFD}c\u{FFFD}d\u{FFFD}e\u{FFFD}f\u{FFFD}")
    #expect(PlainText.line("Größe ✓") == "Größe ✓")
    let outcome = Outcome.failed(code: "origin\tstatus", detail: "x\ny")
    let plain = outcome.plainLine(for: "http://a/\tb\n")
    #expect(plain.count { $0 == "\t" } == 3 && plain.count { $0 == "\n" } == 1)
  }

  @Test(
    "a TLS failure of a URL without a scheme mentions that https was used"
  )
  func schemes() {
    let failed = Outcome.failed(code: "tls_failure", detail: "wrong version.").mentioningScheme
    let detail =
      "wrong version. The URL has no scheme, so https was used. Add http:// for plain HTTP."
    #expect(failed == .failed(code: "tls_failure", detail: detail))
    let other = Outcome.failed(code: "timeout", detail: "late.")
    #expect(other.mentioningScheme == other)
  }

  @Test("a redrawn line has the width that it seems to have")
  func columns() {
    #expect(PlainText.columns("abc", atMost: 3) == "abc")
    #expect(PlainText.columns("abcd", atMost: 3) == "ab~")
    #expect(PlainText.columns("e\u{301}\u{1B}x", atMost: 9) == "e??x")
  }

  @Test(
    "an unreachable service is retried at growing intervals for two minutes",
    arguments: [0.0, 0.5, 1.0])
  func retries(jitter: Double) {
    var retries = Backoff()
    var now = ContinuousClock.now
    let start = now
    var last = Duration.zero
    while let pause = retries.failed(at: now, jitter: jitter) {
      #expect(pause >= last && pause <= .seconds(5) && pause > .zero)
      last = pause
      now += pause
    }
    #expect(now - start >= Backoff.limit)
    retries.answered()
    #expect(retries.failed(at: now, jitter: jitter) != nil)
  }

  @Test("Retry-After is obeyed within bounds; other responses are not waited for")
  func pause() {
    func pause(_ status: Int, _ field: String?) -> Double? {
      var answer = ServiceConnection.Response(status: status)
      answer.fields["retry-after"] = field
      return Download.pause(after: answer)
    }
    #expect(pause(200, "5") == nil && pause(404, nil) == nil && pause(500, nil) == nil)
    #expect(3.7...6.3 ~= pause(503, "5") ?? 0)
    #expect(45...75 ~= pause(429, "86400") ?? 0)
    #expect(0.05...0.2 ~= pause(429, "-7") ?? 0)
    #expect(0.7...1.3 ~= pause(503, "Fri, 31 Dec 1999 23:59:59 GMT") ?? 0)
  }

  @Test(
    "an invalid service address is refused",
    arguments: [
      "", "localhost:8080", "ftp://a", "http://", "http://:80", "http:///x", "http://u:p@a",
      "http://a?b", "http://a#b", "http://a b", "http://a\r\nX: y",
    ])
  func addresses(text: String) {
    #expect(ServiceAddress(text, token: nil) == nil)
  }

  @Test("a service's address may have a path")
  func base() throws {
    let address = try #require(ServiceAddress("https://example.org/images/", token: nil))
    #expect(address.base == "https://example.org/images")
  }

  @Test("valid header fields are read as written, and others are refused")
  func headerFields() {
    let field = ImageOptions.HeaderField("Accept-Language:  en, de;q=0.5")
    #expect(field?.name == "Accept-Language" && field?.value == "en, de;q=0.5")
    for line in ["", "a", ": b", "a b: c", "a: b\r\nc: d", "ä: b"] {
      #expect(ImageOptions.HeaderField(line) == nil, "\(line)")
    }
  }

  @Test("the options use the API's names")
  func options() {
    #expect(ImageOptions.Fit.allCases.map(\.rawValue) == Variant.Fit.allCases.map(\.rawValue))
    let formats = Set(OutputFormat.allCases.map(\.rawValue))
    #expect(Set(ImageOptions.Format.allCases.map(\.rawValue)) == formats)
    let modes = Set(CacheMode.allCases.map(\.rawValue))
    #expect(Set(ImageOptions.CacheMode.allCases.map(\.rawValue)) == modes)
    #expect(ImageOptions.Priority.allCases.count == Priority.allCases.count)
    var options = ImageOptions()
    #expect(options.query.isEmpty)
    (options.width, options.fit, options.dpr) = (320, .scaleDown, 1.5)
    #expect(options.query == "?width=320&fit=scale-down&dpr=1.5")
    let body = options.submission(of: "http://a/\"\u{1}")
    #expect(String(decoding: body, as: UTF8.self) == #"{"url":"http://a/\"\u0001"}"#)
  }

  @Test("a response that is not a job is refused")
  func answers() {
    let job =
      #"{"id":"01-af","phase":"queued","progress":{"completed":0,"total":null},"attempts":0}"#
    #expect(JobResponse(Array(job.utf8))?.id == "01-af")
    #expect(JobResponse(Array(job.replacing("01-af", with: "../x").utf8)) == nil)
    #expect(JobResponse(Array(job.replacing("queued", with: "other").utf8)) == nil)
    #expect(JobResponse(Array("<html>".utf8)) == nil)
  }
}

@Suite("The options for the jobs of a batch")
struct ListOptionsTests {
  @Test("header fields may be secret, so they are sent in the lines and not in the URL")
  func headers() throws {
    var options = ImageOptions()
    options.tags = ["feed"]
    #expect(String(decoding: options.line(of: "http://a/"), as: UTF8.self) == #""http://a/""#)
    options.headers = [try #require(ImageOptions.HeaderField("Authorization: Bearer S"))]
    #expect(options.defaults == #"{"tags":["feed"]}"#)
    #expect(
      String(decoding: options.line(of: "http://a/"), as: UTF8.self)
        == #"{"headers":{"Authorization":"Bearer S"},"url":"http://a/"}"#)
    options.tags = []
    #expect(options.defaults == nil)
  }
}
