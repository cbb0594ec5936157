import Foundation
import Jobs
import Testing

@Suite("A source URL")
struct SourceURLTests {
  @Test(
    "a URL is parsed into unambiguous parts",
    arguments: [
      ("https://example.org/cat.jpg", "https", "example.org", 443, "/cat.jpg"),
      ("HTTP://EXAMPLE.org:8080/A?b=C#frag", "http", "example.org", 8080, "/A?b=C"),
      ("http://example.org", "http", "example.org", 80, "/"),
      ("http://example.org?x=1", "http", "example.org", 80, "/?x=1"),
      ("http://example.org:/x", "http", "example.org", 80, "/x"),
      ("http://[2001:DB8::1]:81/x", "http", "2001:db8::1", 81, "/x"),
      ("  https://example.org/a b.jpg ", "https", "example.org", 443, "/a%20b.jpg"),
      (
        "https://example.org/ü|\"<>?q='a'", "https", "example.org", 443,
        "/%C3%BC%7C%22%3C%3E?q=%27a%27"
      ),
      ("https://example.org/%2e%2E/x", "https", "example.org", 443, "/%2e%2E/x"),
    ])
  func parts(text: String, scheme: String, host: String, port: Int, rest: String) throws {
    let url = try #require(SourceURL(text))
    #expect(url.scheme == scheme)
    #expect(url.host == host)
    #expect(url.port == port)
    #expect(url.pathAndQuery == rest)
    #expect(SourceURL(url.string) == url, "its own text form is read the same")
  }

  @Test(
    "a URL is refused if parsers disagree about it or it cannot be fetched",
    arguments: [
      "", "/x", "//example.org/x", "ftp://example.org/x", "file:///etc/passwd",
      "data:image/png;base64,",
      "http:example.org", "http:///x", "http://", "http://:80/", "http://user@example.org/",
      "http://user:secret@example.org/", "http://example.org\\@evil.example/",
      "http://exa mple.org/",
      "http://example.org:0/", "http://example.org:65536/", "http://example.org:8o/",
      "http://[::1/",
      "http://[example.org]/", "http://example.org/\n", "http://exam\tple.org/",
      "http://example.org/\u{0}",
      "http://example.org%00.evil.example/", "http://example.org%2f/", "http://exam<ple/",
      "gopher://x/",
    ])
  func refused(text: String) {
    #expect(SourceURL(text) == nil)
  }

  @Test(
    "a host is plain only if it has no other spelling",
    arguments: [
      ("example.org", true), ("EXAMPLE.org:81", true), ("1.example", true), ("a_b.x1", true),
      ("localhost", true), ("xn--bcher-kva.example", true), ("example.org.", false),
      ("192.0.2.1", false), ("127.1", false), ("0x7f.1", false), ("2130706433", false),
      ("x.0x7f", false), ("[::1]", false), ("bücher.example", false), ("ｌocalhost", false),
      ("127。1", false),
    ])
  func plainHost(host: String, isPlain: Bool) throws {
    #expect(try #require(SourceURL("http://\(host)/")).hasPlainHost == isPlain)
  }

  @Test(
    "a URL has an origin with another spelling of its host",
    arguments: [
      ("http://127.1/x", "127.0.0.1", "http://127.0.0.1"),
      ("https://127.1:80/x", "127.0.0.1", "https://127.0.0.1:80"),
      ("http://[0:0::1]:81/x", "::1", "http://[::1]:81"),
      ("http://[::ffff:127.0.0.1]/", "127.0.0.1", "http://127.0.0.1"),
    ])
  func spelled(text: String, host: String, origin: String) throws {
    let url = try #require(SourceURL(text))
    #expect(url.origin(spelling: host) == origin)
    #expect(url.string == text, "which is not shown")
  }

  @Test("a URL that is longer than the limit is refused")
  func length() {
    let base = "http://example.org/"
    let fits = base + String(repeating: "a", count: SourceURL.maxLength - base.utf8.count)
    #expect(SourceURL(fits) != nil)
    #expect(SourceURL(fits + "a") == nil)
  }

  @Test(
    "the limit also applies to the encoded URL, so that it can be parsed again",
    arguments: ["é", "\"", " x", "{"])
  func encoded(character: String) throws {
    let base = "http://example.org?"
    for count in [100, 2_000, 2_700, 2_730, 4_000, 8_000] {
      guard let url = SourceURL(base + String(repeating: character, count: count)) else { continue }
      #expect(url.string.utf8.count <= SourceURL.maxLength)
      let record = try JSONEncoder().encode([url])
      #expect(try JSONDecoder().decode([SourceURL].self, from: record) == [url])
    }
    #expect(SourceURL(base + String(repeating: character, count: 4_090)) == nil)
  }
}
